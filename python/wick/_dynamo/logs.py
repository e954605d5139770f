"""What a captured call of a logger does again in each replay."""


def log_again(logger, level, message, arguments, file, line, function):
    """The record of a message whose place in the program is known, made now and given to the logger's handlers."""
    record = logger.makeRecord(logger.name, level, file, line, message, arguments, None, function, None, None)
    logger.handle(record)

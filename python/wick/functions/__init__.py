"""The functions of wick.functional, a file for each subject: loaded when one of its names is first asked for."""

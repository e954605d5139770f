/* Headers that are compiled for the host as well ask for it; code for the device calls nothing of it. */

"""Pure values and protocols that every other part of linkflap uses. Nothing here opens a socket or
starts a process."""

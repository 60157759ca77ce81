"""Harbor task directories in the jail: their images, their commands, their verifiers."""

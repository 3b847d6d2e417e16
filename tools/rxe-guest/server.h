/* What the two parts of the guest's command server share. */
#ifndef RXE_PEER_SERVER_H
#define RXE_PEER_SERVER_H

/* Say what failed, and why as errno has it, and end; in process 1 that ends the guest. */
void die(const char *what);

/* Serve one session after the other on a port; commands get `root` as their root directory. */
void serve_port(const char *root, int number);

#endif

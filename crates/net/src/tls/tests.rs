//! Handshakes over real sockets.

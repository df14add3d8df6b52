//! A client that is two buffers.

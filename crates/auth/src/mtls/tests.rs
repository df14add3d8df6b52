//! Whose certificates come in.

//! The test vectors of JSON Patch.

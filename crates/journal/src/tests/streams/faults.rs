//! Files of streams that are damaged, missing, or of other folders.

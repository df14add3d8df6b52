//! Tests of the step and the source together.

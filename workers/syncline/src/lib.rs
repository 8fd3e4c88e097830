//! Distributed training for machines that are not all alike.

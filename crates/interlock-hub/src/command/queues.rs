//! FCALL: the functions of keyed queues.

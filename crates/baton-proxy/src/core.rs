//! One core: its runtime, its view of the generation, its pools.

//! Sample fetches, converters, ACLs, actions and log formats: one table row each, and their evaluation.

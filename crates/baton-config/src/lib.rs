//! haproxy.cfg: text to syntax to model, with every fault named.

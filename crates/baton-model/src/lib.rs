//! What the proxy is, as data: frontends, backends, servers, rules; and the difference between two models.

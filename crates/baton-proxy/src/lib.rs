//! The request line: one core's accept, parse, route, balance, upstream, relay, respond and record.

//! The other two ends of the wire: a load client that never stops at an error, and origins that count.

//! XXH64, for dynamic cookies (written from the xxHash specification, version 0.1.1; seed 0).

const PRIMES: [u64; 5] =
    [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x85eb_ca77_c2b2_ae63, 0x27d4_eb2f_1656_67c5];

/// The hash of some bytes.
pub(super) fn xxh64(bytes: &[u8]) -> u64 {
    let (stripes, rest) = bytes.split_at(bytes.len() / 32 * 32);
    let mut hash = if stripes.is_empty() { PRIMES[4] } else { stripes_hash(stripes) };
    hash = hash.wrapping_add(bytes.len() as u64);
    let (lanes, rest) = rest.split_at(rest.len() / 8 * 8);
    for lane in lanes.chunks_exact(8) {
        hash ^= round(0, little_endian(lane));
        hash = hash.rotate_left(27).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]);
    }
    let (half, rest) = rest.split_at(rest.len() / 4 * 4);
    if !half.is_empty() {
        hash ^= little_endian(half).wrapping_mul(PRIMES[0]);
        hash = hash.rotate_left(23).wrapping_mul(PRIMES[1]).wrapping_add(PRIMES[2]);
    }
    for byte in rest {
        hash ^= u64::from(*byte).wrapping_mul(PRIMES[4]);
        hash = hash.rotate_left(11).wrapping_mul(PRIMES[0]);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(PRIMES[1]);
    hash = (hash ^ (hash >> 29)).wrapping_mul(PRIMES[2]);
    hash ^ (hash >> 32)
}

fn stripes_hash(stripes: &[u8]) -> u64 {
    let mut lanes = [PRIMES[0].wrapping_add(PRIMES[1]), PRIMES[1], 0, 0u64.wrapping_sub(PRIMES[0])];
    for stripe in stripes.chunks_exact(32) {
        for (lane, bytes) in lanes.iter_mut().zip(stripe.chunks_exact(8)) {
            *lane = round(*lane, little_endian(bytes));
        }
    }
    let shifts = [1, 7, 12, 18];
    let start = lanes.iter().zip(shifts).fold(0u64, |sum, (lane, shift)| sum.wrapping_add(lane.rotate_left(shift)));
    lanes.iter().fold(start, |hash, lane| (hash ^ round(0, *lane)).wrapping_mul(PRIMES[0]).wrapping_add(PRIMES[3]))
}

fn round(lane: u64, input: u64) -> u64 {
    lane.wrapping_add(input.wrapping_mul(PRIMES[1])).rotate_left(31).wrapping_mul(PRIMES[0])
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::xxh64;

    #[test]
    fn known_hashes() {
        assert_eq!(xxh64(b""), 0xef46_db37_51d8_e999);
        assert_eq!(xxh64(b"a"), 0xd24e_c4f1_a98c_6e5b);
        assert_eq!(xxh64(b"abc"), 0x44bc_2cf5_ad77_0999);
        assert_eq!(xxh64(b"Nobody inspects the spammish repetition"), 0xfbce_a83c_8a37_8bf1);
    }
}

//! RSA keys of a faulty generator, whose private part can be computed (CVE-2017-15361, "ROCA").

/// The small primes that the generator's primes are made of.
const PRIMES: [u16; 38] = [
    3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71, 73, 79, 83, 89, 97,
    101, 103, 107, 109, 113, 127, 131, 137, 139, 149, 151, 157, 163, 167,
];
const GENERATOR: u32 = 65_537;

/// Whether a modulus, most significant byte first, is one of theirs: it is a power of 65537 modulo
/// each of the primes, which one in 2^27 of other moduli is too (Nemec et al., "The Return of
/// Coppersmith's Attack", section 3.1).
pub(super) fn is_vulnerable(modulus: &[u8]) -> bool {
    PRIMES.iter().all(|&prime| {
        let prime = u32::from(prime);
        let reduce = |rest: u32, &byte: &u8| (rest << 8 | u32::from(byte)) % prime;
        let rest = modulus.iter().fold(0, reduce);
        let powers = std::iter::successors(Some(1), |power| Some(power * GENERATOR % prime));
        powers.take(prime as usize).any(|power| power == rest)
    })
}

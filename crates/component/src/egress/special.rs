//! Addresses that are not public: the special-purpose address registries of IANA (RFC 6890), and
//! those at which clouds answer questions about a machine.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `0.0.0.0/8` and `::`: connecting there reaches this machine.
    Unspecified,
    /// This machine.
    Loopback,
    /// A private network (RFC 1918, RFC 4193).
    Private,
    /// The network of a carrier (RFC 6598), in use within clouds too.
    Shared,
    /// One link (RFC 3927, RFC 4291), or one site (RFC 3879).
    LinkLocal,
    /// Where a cloud tells a machine its credentials and settings.
    Metadata,
    /// Many receivers.
    Multicast,
    /// All of a link.
    Broadcast,
    /// For examples (RFC 5737, RFC 3849, RFC 9637).
    Documentation,
    /// For measurements (RFC 2544, RFC 5180).
    Benchmarking,
    /// An IPv4 address in a form of IPv6 that gateways or kernels make into it: IPv4-compatible,
    /// IPv4-translated, 6to4, NAT64, Teredo, ISATAP.
    Translated,
    /// Everything else that is set aside or not given out.
    Reserved,
}

impl fmt::Display for Class {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unspecified => "an unspecified address",
            Self::Loopback => "a loopback address",
            Self::Private => "a private address",
            Self::Shared => "a shared address (RFC 6598)",
            Self::LinkLocal => "a link-local address",
            Self::Metadata => "an address of a metadata service",
            Self::Multicast => "a multicast address",
            Self::Broadcast => "the broadcast address",
            Self::Documentation => "an address for documentation",
            Self::Benchmarking => "an address for benchmarking",
            Self::Translated => "an IPv6 address that stands for an IPv4 address",
            Self::Reserved => "a reserved address",
        })
    }
}

type V4 = (Ipv4Addr, u32, Class);
type V6 = (Ipv6Addr, u32, Class);

const fn v4(a: u8, b: u8, c: u8, d: u8, bits: u32, class: Class) -> V4 {
    (Ipv4Addr::new(a, b, c, d), bits, class)
}

/// The first block that an address is in decides.
const V4_BLOCKS: [V4; 21] = [
    v4(169, 254, 169, 254, 32, Class::Metadata),
    // Amazon's credentials of tasks and of pods.
    v4(169, 254, 170, 2, 32, Class::Metadata),
    v4(169, 254, 170, 23, 32, Class::Metadata),
    // Alibaba's.
    v4(100, 100, 100, 200, 32, Class::Metadata),
    // Oracle's, beside the usual one.
    v4(192, 0, 0, 192, 32, Class::Metadata),
    // Azure's, with the settings and certificates of a machine, at an address like any other.
    v4(168, 63, 129, 16, 32, Class::Metadata),
    v4(0, 0, 0, 0, 8, Class::Unspecified),
    v4(10, 0, 0, 0, 8, Class::Private),
    v4(100, 64, 0, 0, 10, Class::Shared),
    v4(127, 0, 0, 0, 8, Class::Loopback),
    v4(169, 254, 0, 0, 16, Class::LinkLocal),
    v4(172, 16, 0, 0, 12, Class::Private),
    v4(192, 0, 0, 0, 24, Class::Reserved),
    v4(192, 0, 2, 0, 24, Class::Documentation),
    // Relays of 6to4 (RFC 7526).
    v4(192, 88, 99, 0, 24, Class::Reserved),
    v4(192, 168, 0, 0, 16, Class::Private),
    v4(198, 18, 0, 0, 15, Class::Benchmarking),
    v4(198, 51, 100, 0, 24, Class::Documentation),
    v4(203, 0, 113, 0, 24, Class::Documentation),
    v4(224, 0, 0, 0, 4, Class::Multicast),
    v4(255, 255, 255, 255, 32, Class::Broadcast),
];

const fn v6(parts: [u16; 8], bits: u32, class: Class) -> V6 {
    let [a, b, c, d, e, f, g, h] = parts;
    (Ipv6Addr::new(a, b, c, d, e, f, g, h), bits, class)
}

/// The same for IPv6, where outside of `2000::/3` nothing is public.
const V6_BLOCKS: [V6; 20] = [
    v6(
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254],
        128,
        Class::Metadata,
    ),
    // Amazon's credentials of pods.
    v6(
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023],
        128,
        Class::Metadata,
    ),
    // Google's.
    v6(
        [0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254],
        128,
        Class::Metadata,
    ),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 128, Class::Unspecified),
    v6([0, 0, 0, 0, 0, 0, 0, 1], 128, Class::Loopback),
    v6([0, 0, 0, 0, 0, 0, 0, 0], 96, Class::Translated),
    v6([0, 0, 0, 0, 0xffff, 0, 0, 0], 96, Class::Translated),
    v6([0x64, 0xff9b, 0, 0, 0, 0, 0, 0], 96, Class::Translated),
    v6([0x64, 0xff9b, 1, 0, 0, 0, 0, 0], 48, Class::Translated),
    // Teredo.
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 32, Class::Translated),
    v6([0x2001, 2, 0, 0, 0, 0, 0, 0], 48, Class::Benchmarking),
    // Assignments of the IETF, none of which is a host's.
    v6([0x2001, 0, 0, 0, 0, 0, 0, 0], 23, Class::Reserved),
    v6([0x2001, 0x0db8, 0, 0, 0, 0, 0, 0], 32, Class::Documentation),
    // 6to4.
    v6([0x2002, 0, 0, 0, 0, 0, 0, 0], 16, Class::Translated),
    v6([0x3fff, 0, 0, 0, 0, 0, 0, 0], 20, Class::Documentation),
    v6([0xfc00, 0, 0, 0, 0, 0, 0, 0], 7, Class::Private),
    v6([0xfe80, 0, 0, 0, 0, 0, 0, 0], 10, Class::LinkLocal),
    // Site-local, out of use (RFC 3879).
    v6([0xfec0, 0, 0, 0, 0, 0, 0, 0], 10, Class::LinkLocal),
    v6([0xff00, 0, 0, 0, 0, 0, 0, 0], 8, Class::Multicast),
    // For SRv6 (RFC 9602); named, since it lies outside anyway.
    v6([0x5f00, 0, 0, 0, 0, 0, 0, 0], 16, Class::Reserved),
];

/// What IANA gives out (RFC 4291, section 2.4).
const GLOBAL_UNICAST: (u128, u32) = (0x2000 << 112, 3);

/// Why an address is not public; `None` when it is. IPv4 that is mapped into IPv6 must have been
/// made IPv4 before.
pub(super) fn class_of(address: IpAddr) -> Option<Class> {
    match address {
        IpAddr::V4(address) => {
            let bits = address.to_bits();
            let is_in = |(first, length, _): &&V4| {
                let mask = u32::MAX.checked_shl(32 - length).unwrap_or_default();
                bits & mask == first.to_bits()
            };
            let found = V4_BLOCKS.iter().find(is_in).map(|(_, _, class)| *class);
            // Behind multicast nothing is given out.
            found.or((bits >= 0xf000_0000).then_some(Class::Reserved))
        }
        IpAddr::V6(address) => {
            let bits = address.to_bits();
            let mask = |length: u32| u128::MAX.checked_shl(128 - length).unwrap_or_default();
            let is_in = |(first, length, _): &&V6| bits & mask(*length) == first.to_bits();
            let found = V6_BLOCKS.iter().find(is_in).map(|(_, _, class)| *class);
            let (first, length) = GLOBAL_UNICAST;
            let is_outside = bits & mask(length) != first;
            let isatap = || is_isatap(address).then_some(Class::Translated);
            found
                .or_else(isatap)
                .or(is_outside.then_some(Class::Reserved))
        }
    }
}

/// The IPv4 address that an IPv6 address stands for, where its form tells which bits it is in. In
/// the blocks of NAT64 that a network chooses itself it does not.
pub(super) fn embedded(address: IpAddr) -> Option<Ipv4Addr> {
    let IpAddr::V6(address) = address else {
        return None;
    };
    let last = |bits: u128| Ipv4Addr::from_bits(bits as u32);
    let bits = address.to_bits();
    match address.segments() {
        // IPv4-compatible, where `::` and `::1` have a meaning of their own.
        [0, 0, 0, 0, 0, 0, ..] if bits > 1 => Some(last(bits)),
        [0, 0, 0, 0, 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(last(bits)),
        // 6to4 (RFC 3056, section 2).
        [0x2002, ..] => Some(last(bits >> 80)),
        // Teredo has the bits of the client inverted (RFC 4380, section 4).
        [0x2001, 0, ..] => Some(last(!bits)),
        _ if is_isatap(address) => Some(last(bits)),
        _ => None,
    }
}

/// Whether the interface identifier is one of ISATAP (RFC 5214, section 6.1).
fn is_isatap(address: Ipv6Addr) -> bool {
    matches!(address.segments(), [_, _, _, _, 0 | 0x0200, 0x5efe, _, _])
}

//! TLS to an upstream, as a flow file says it.

use component::egress::Origins;
use component::text::parse_host;
use component::tls::{FileName, IdentityFiles, Place, TlsVersion, UpstreamTls, Verify};
use config::{Report, Span, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::BAD_TLS;

/// TLS to an `https` target. File names are relative to the flow file's folder; files are PEM.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// The file with the certificate authorities to trust. The default is the system's.
    ca: Option<Spanned<String>>,
    /// The file with the client certificate and its chain (mutual TLS), with `key`.
    cert: Option<Spanned<String>>,
    /// The file with the private key of `cert`.
    key: Option<Spanned<String>>,
    /// The name to send as SNI and to find in the target's certificate. The default is the target's
    /// host.
    server_name: Option<Spanned<String>>,
    /// `chain`: the certificate must be issued by a trusted authority for the right name. `pin`:
    /// its public key must be listed under `pin`, whoever issued it.
    #[serde(default)]
    verify: Verify,
    /// SHA-256 hashes of public keys to accept, each `sha256:` and 64 hexadecimal digits. With
    /// `verify: chain` they are checked in addition.
    pin: Option<Vec<Spanned<String>>>,
    /// The minimum version of TLS.
    #[serde(default)]
    min_version: TlsVersion,
}

/// Makes the upstreams of URLs that users set: `place` is where the settings stand or could stand,
/// `egress` where a file lets URLs be set. Every problem is reported.
pub fn read_origins(
    (tls, place): (Option<&Spanned<TlsConfig>>, Span),
    egress: Span,
    report: &mut Report,
) -> Origins {
    let settings = read(tls, place, report);
    if let Some(tls) = tls.filter(|_| settings.server_name.is_some()) {
        let message = "`server_name` cannot be the name of all hosts";
        let diagnostic = report.error(BAD_TLS, tls.span, message);
        diagnostic.hint("leave it out: each host has to show a certificate for its own name");
    }
    Origins::new(settings, Some(Place(egress)))
}

/// Makes the settings of an `https` target.
pub(crate) fn read(
    config: Option<&Spanned<TlsConfig>>,
    place: Span,
    report: &mut Report,
) -> UpstreamTls {
    let mut tls = UpstreamTls {
        place: Some(Place(place)),
        ..UpstreamTls::default()
    };
    let Some(Spanned {
        value: config,
        span,
    }) = config
    else {
        return tls;
    };
    tls.ca = config.ca.as_ref().map(FileName::from);
    tls.identity = read_identity(config, *span, report);
    tls.server_name = config
        .server_name
        .as_ref()
        .and_then(|name| read_server_name(name, report));
    let pins = config.pin.as_deref().unwrap_or_default();
    tls.pins = pins
        .iter()
        .filter_map(|pin| read_pin(pin, report))
        .collect();
    tls.verify = config.verify;
    tls.min_version = config.min_version;
    if config.verify == Verify::Pin {
        if pins.is_empty() {
            report
                .error(BAD_TLS, *span, "`verify: pin` needs a `pin`")
                .hint("without one, every certificate would be refused");
        }
        if let Some(ca) = &config.ca {
            report
                .error(BAD_TLS, ca.span, "`ca` has no effect with `verify: pin`")
                .hint("leave `ca` out, or say `verify: chain`");
        }
    }
    tls
}

fn read_identity(config: &TlsConfig, span: Span, report: &mut Report) -> Option<IdentityFiles> {
    match (&config.cert, &config.key) {
        (Some(cert), Some(key)) => Some(IdentityFiles {
            cert: cert.into(),
            key: key.into(),
        }),
        (None, None) => None,
        _ => {
            report
                .error(BAD_TLS, span, "`cert` and `key` belong together")
                .hint("give both, or neither");
            None
        }
    }
}

fn read_server_name(name: &Spanned<String>, report: &mut Report) -> Option<String> {
    match parse_host(&name.value) {
        Ok(host) => Some(host),
        Err(error) => {
            let diagnostic = report.error(BAD_TLS, name.span, error.message);
            if let Some(hint) = error.hint {
                diagnostic.hint(hint);
            }
            None
        }
    }
}

fn read_pin(pin: &Spanned<String>, report: &mut Report) -> Option<[u8; 32]> {
    let digits = pin.value.strip_prefix("sha256:").unwrap_or_default();
    let bytes: Option<Vec<u8>> = (0..digits.len())
        .step_by(2)
        .map(|at| {
            let pair = digits.get(at..at + 2)?;
            u8::from_str_radix(pair, 16).ok()
        })
        .collect();
    let hash = bytes.and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    if hash.is_none() {
        report
            .error(
                BAD_TLS,
                pin.span,
                "a pin is `sha256:` and 64 hexadecimal digits",
            )
            .hint(
                "openssl x509 -in CERT -pubkey -noout | openssl pkey -pubin -outform der | \
                 sha256sum",
            );
    }
    hash
}

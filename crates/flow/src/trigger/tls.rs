//! The TLS settings and protocols of a listener, as a flow file says them.

use component::tls::{
    ClientAuth, ClientTls, FileName, IdentityFiles, ListenerTls, Protocol, TlsVersion,
};
use config::{Report, Spanned};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::LISTENER_TLS;

/// TLS of a listener. File names are relative to the flow file's folder; files are PEM, and are
/// read again when they change.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TlsConfig {
    /// The file with the certificate chain, the server's own certificate first.
    cert: Spanned<String>,
    /// The file with the private key.
    key: Spanned<String>,
    /// Further certificates, chosen by the name that the client asks for (SNI).
    sni: Option<Vec<IdentityConfig>>,
    /// The file with the certificate authorities of client certificates (mutual TLS).
    client_ca: Option<Spanned<String>>,
    /// Whether clients must present a certificate (`required`) or may (`optional`). Only with
    /// `client_ca`.
    #[schemars(extend("default" = "required"))]
    client_auth: Option<Spanned<ClientAuth>>,
    /// Files with lists of revoked certificates (CRLs, RFC 5280), PEM or DER. Every authority of a
    /// client's chain needs one that is current: a client is refused when it is revoked, and also
    /// when no list can say. Only with `client_ca`.
    client_crls: Option<Spanned<Vec<Spanned<String>>>>,
    /// Whether only the client's own certificate is looked for in `client_crls`, so that the
    /// authorities between it and `client_ca` need no list.
    client_crl_leaf_only: Option<Spanned<bool>>,
    /// The minimum version of TLS.
    #[serde(default)]
    min_version: TlsVersion,
}

/// A certificate and its key.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct IdentityConfig {
    /// The file with the certificate chain.
    cert: Spanned<String>,
    /// The file with the private key.
    key: Spanned<String>,
}

pub(super) fn read(config: &Spanned<TlsConfig>, report: &mut Report) -> ListenerTls {
    let config = &config.value;
    if let Some(auth) = config
        .client_auth
        .as_ref()
        .filter(|_| config.client_ca.is_none())
    {
        report
            .error(
                LISTENER_TLS,
                auth.span,
                "`client_auth` has no effect without `client_ca`",
            )
            .hint("name the file with the authorities of client certificates");
    }
    check_lists(config, report);
    let first = identity(&config.cert, &config.key);
    let others = config.sni.iter().flatten();
    let others = others.map(|other| identity(&other.cert, &other.key));
    let auth = config.client_auth.map(|auth| auth.value);
    let crls = config.client_crls.iter().flat_map(|it| &it.value);
    ListenerTls {
        identities: std::iter::once(first).chain(others).collect(),
        clients: config.client_ca.as_ref().map(|ca| ClientTls {
            ca: FileName::from(ca),
            auth: auth.unwrap_or_default(),
            crls: crls.map(FileName::from).collect(),
            crl_leaf_only: config
                .client_crl_leaf_only
                .as_ref()
                .is_some_and(|it| it.value),
        }),
        min_version: config.min_version,
    }
}

/// Refuses lists of revoked certificates that nobody would look at.
fn check_lists(config: &TlsConfig, report: &mut Report) {
    let lists = config.client_crls.as_ref();
    let has_lists = lists.is_some_and(|it| !it.value.is_empty());
    let (span, message, hint) = match (lists, &config.client_crl_leaf_only) {
        (Some(lists), _) if config.client_ca.is_none() => (
            lists.span,
            "`client_crls` has no effect without `client_ca`",
            "name the file with the authorities of client certificates",
        ),
        (Some(lists), _) if !has_lists => (
            lists.span,
            "`client_crls` names no list",
            "name the files, or leave it out",
        ),
        (None, Some(leaf_only)) => (
            leaf_only.span,
            "`client_crl_leaf_only` has no effect without `client_crls`",
            "name the files with the lists of revoked certificates",
        ),
        _ => return,
    };
    report.error(LISTENER_TLS, span, message).hint(hint);
}

pub(super) fn read_protocols(
    config: Option<&Spanned<Vec<Protocol>>>,
    has_tls: bool,
    report: &mut Report,
) -> Vec<Protocol> {
    let Some(config) = config else {
        return match has_tls {
            true => vec![Protocol::Http2, Protocol::Http1],
            false => vec![Protocol::Http1],
        };
    };
    let message = match config.value.as_slice() {
        [] => Some("`protocols` is empty"),
        [first, rest @ ..] if rest.contains(first) => Some("a protocol is named twice"),
        _ => None,
    };
    if let Some(message) = message {
        report
            .error(LISTENER_TLS, config.span, message)
            .hint("write `[http/1.1]`, `[h2]` or both");
    }
    config.value.clone()
}

fn identity(cert: &Spanned<String>, key: &Spanned<String>) -> IdentityFiles {
    IdentityFiles {
        cert: cert.into(),
        key: key.into(),
    }
}

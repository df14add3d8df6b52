//! TLS to a broker or a database, as a flow file says it. The files are read when the flow file is
//! loaded, and what is wrong with them is told there.

use std::time::SystemTime;

use bytes::Bytes;
use component::definition::ConnectionContext;
use component::text::parse_host;
use component::tls::{FileName, IdentityFiles, Place, UpstreamTls};
use config::{Span, Spanned};
use net::tls::{Client, ClientSettings, Identity, MinVersion, Roots, TlsError, Trust};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::codes::BAD_TLS;

/// TLS to the other system. File names are relative to the flow file's folder; files are PEM.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TlsConfig {
    /// The file with the certificate authorities to trust. The default is the system's.
    ca: Option<Spanned<String>>,
    /// The file with the client certificate and its chain (mutual TLS), with `key`.
    cert: Option<Spanned<String>>,
    /// The file with the private key of `cert`.
    key: Option<Spanned<String>>,
    /// The name to find in the server's certificate. The default is the URL's host.
    server_name: Option<Spanned<String>>,
}

/// TLS to the other system.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tls {
    /// The authorities to trust instead of the system's, PEM.
    pub ca: Option<Bytes>,
    /// The certificate chain to show and its key, PEM.
    pub identity: Option<(Bytes, Bytes)>,
    /// The name that the certificate must have, instead of the host.
    pub server_name: Option<String>,
}

impl Tls {
    /// All that makes a difference, the key included: shown to nobody.
    pub fn settings(&self) -> String {
        format!("{:?} {:?} {:?}", self.ca, self.identity, self.server_name)
    }

    /// The client side for a host, which the certificate must be for.
    ///
    /// # Errors
    /// When the system has no authorities, or a certificate of our own has ended.
    pub fn client(&self, host: &str) -> Result<Client, TlsError> {
        let roots = match &self.ca {
            Some(ca) => Roots::from_pem(ca)?,
            None => Roots::of_system()?,
        };
        let identity = match &self.identity {
            Some((chain, key)) => Some(Identity::from_pem(chain, key, SystemTime::now())?),
            None => None,
        };
        let settings = ClientSettings {
            trust: Trust::Chain(roots, Vec::new()),
            identity,
            protocols: Vec::new(),
            min_version: MinVersion::Tls12,
        };
        Client::new(self.server_name.as_deref().unwrap_or(host), settings)
    }

    /// The authorities to trust, for drivers that make their own TLS: files of PEM, or certificates
    /// of DER.
    ///
    /// # Errors
    /// When the system has none.
    #[cfg(feature = "mysql")]
    pub fn authorities(&self) -> Result<Vec<Vec<u8>>, TlsError> {
        match &self.ca {
            Some(ca) => Ok(vec![ca.to_vec()]),
            None => Roots::der_of_system(),
        }
    }
}

/// Reads the settings and the files that they name. `wants_tls` is what the URL's scheme says.
/// Every problem is reported; the result is then of no use.
pub(crate) fn read(
    config: Option<&Spanned<TlsConfig>>,
    (wants_tls, hint): (bool, &str),
    context: &mut ConnectionContext<'_>,
) -> Tls {
    let mut tls = Tls::default();
    let Some(Spanned {
        value: config,
        span,
    }) = config
    else {
        return tls;
    };
    if !wants_tls {
        context
            .report
            .error(BAD_TLS, *span, "the URL does not ask for TLS")
            .hint(hint.to_owned());
    }
    tls.ca = read_file(config.ca.as_ref(), context);
    if let (Some(name), Some(ca)) = (&config.ca, &tls.ca) {
        or_report(Roots::from_pem(ca), name.span, context);
    }
    let both = (&config.cert, &config.key);
    if let (Some(cert), None) | (None, Some(cert)) = both {
        let message = "`cert` and `key` belong together";
        context
            .report
            .error(BAD_TLS, cert.span, message)
            .hint("name both files, or neither");
    }
    if let (Some(cert), Some(_)) = both {
        let chain = read_file(Some(cert), context);
        let key = read_file(config.key.as_ref(), context);
        if let (Some(chain), Some(key)) = (chain, key) {
            let identity = Identity::from_pem(&chain, &key, SystemTime::now());
            or_report(identity, cert.span, context);
            tls.identity = Some((chain, key));
        }
    }
    if let Some(name) = &config.server_name {
        if parse_host(&name.value).is_err() {
            context
                .report
                .error(BAD_TLS, name.span, "the server name is none")
                .hint("write a DNS name or an address");
        }
        tls.server_name = Some(name.value.clone());
    }
    tls
}

/// The same settings for a system that is reached by HTTP, whose files the engine reads.
pub(crate) fn upstream(
    config: Option<&Spanned<TlsConfig>>,
    (wants_tls, hint): (bool, &str),
    context: &mut ConnectionContext<'_>,
    place: Span,
) -> Option<UpstreamTls> {
    // Whatever is wrong with the files is told here already.
    let read = read(config, (wants_tls, hint), context);
    let config = config.map(|it| &it.value);
    let name = |name: Option<&Spanned<String>>| name.map(FileName::from);
    let identity = config.and_then(|it| {
        let (cert, key) = (name(it.cert.as_ref())?, name(it.key.as_ref())?);
        Some(IdentityFiles { cert, key })
    });
    wants_tls.then(|| UpstreamTls {
        ca: name(config.and_then(|it| it.ca.as_ref())),
        identity,
        server_name: read.server_name,
        place: Some(Place(place)),
        ..UpstreamTls::default()
    })
}

fn read_file(name: Option<&Spanned<String>>, context: &mut ConnectionContext<'_>) -> Option<Bytes> {
    let name = name?;
    match (context.surroundings.files)(name.span.source, &name.value) {
        Ok(bytes) => Some(bytes),
        Err(error) => {
            let message = format!("the file cannot be read: {error}");
            context
                .report
                .error(BAD_TLS, name.span, message)
                .hint("a file name is relative to the folder of the flow file");
            None
        }
    }
}

fn or_report<T>(result: Result<T, TlsError>, span: Span, context: &mut ConnectionContext<'_>) {
    if let Err(error) = result {
        context
            .report
            .error(BAD_TLS, span, error.message)
            .hint(error.hint);
    }
}

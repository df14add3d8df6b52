//! Certificates made at run time, and the TLS settings of the stub and the load generator.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

/// Where the files of one identity are.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The authority that clients trust.
    pub ca: PathBuf,
    /// The certificate of the server.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

impl Identity {
    fn in_folder(folder: &Path) -> Self {
        Self {
            ca: folder.join("ca.pem"),
            cert: folder.join("server.pem"),
            key: folder.join("server.key"),
        }
    }

    /// Makes an authority and a P-256 certificate for `localhost` and 127.0.0.1 signed by it.
    ///
    /// # Errors
    /// When files cannot be written.
    pub fn make(folder: &Path) -> anyhow::Result<Self> {
        let identity = Self::in_folder(folder);
        let mut ca = CertificateParams::new(Vec::new())?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        ca.distinguished_name
            .push(rcgen::DnType::CommonName, "laboratory authority");
        let issuer = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut server = CertificateParams::new(names)?;
        server
            .distinguished_name
            .push(rcgen::DnType::CommonName, "localhost");
        let key = KeyPair::generate()?;
        let server = server.signed_by(&key, &issuer)?;
        write(&identity.ca, &issuer.as_ref().pem())?;
        write(&identity.cert, &server.pem())?;
        write(&identity.key, &key.serialize_pem())?;
        // HAProxy wants both in one file.
        let both = format!("{}{}", server.pem(), key.serialize_pem());
        write(&identity.both(), &both)?;
        Ok(identity)
    }

    /// The file that holds certificate and key.
    pub fn both(&self) -> PathBuf {
        self.cert.with_file_name("both.pem")
    }
}

fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The settings of a server that offers these protocols by ALPN.
pub fn server_config(
    cert: &Path,
    key: &Path,
    protocols: &[String],
) -> anyhow::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("no certificate in {}", cert.display()))?;
    let key = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("no private key in {}", key.display()))?;
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, key)?;
    config.alpn_protocols = wire_names(protocols);
    Ok(Arc::new(config))
}

/// The settings of a client that trusts one authority and offers these protocols by ALPN.
pub fn client_config(ca: &Path, protocols: &[String]) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(
        CertificateDer::from_pem_file(ca)
            .with_context(|| format!("no certificate in {}", ca.display()))?,
    )?;
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = wire_names(protocols);
    Ok(Arc::new(config))
}

fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn wire_names(protocols: &[String]) -> Vec<Vec<u8>> {
    let names = protocols.iter().map(|name| name.as_bytes().to_vec());
    names.collect()
}

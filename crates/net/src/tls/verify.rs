//! Verification of an upstream's certificate by pinned public keys, beside the chain or alone.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};

use super::TlsError;
use super::client::{Pin, Trust};
use super::identity::Facts;

/// Accepts certificates with a pinned public key.
#[derive(Debug)]
pub(super) struct Verifier {
    chain: Option<Arc<WebPkiServerVerifier>>,
    pins: Vec<Pin>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    pub fn new(trust: Trust, provider: &Arc<CryptoProvider>) -> Result<Arc<Self>, TlsError> {
        let provider = Arc::clone(provider);
        let (chain, pins) = match trust {
            Trust::Pinned(pins) => (None, pins),
            Trust::Chain(roots, pins) => {
                let builder =
                    WebPkiServerVerifier::builder_with_provider(roots.0, Arc::clone(&provider));
                let chain = builder
                    .build()
                    .map_err(|error| TlsError::new(error.to_string(), "look at `tls.ca`"))?;
                (Some(chain), pins)
            }
        };
        Ok(Arc::new(Self {
            chain,
            pins,
            provider,
        }))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(chain) = &self.chain {
            let name = server_name;
            chain.verify_server_cert(end_entity, intermediates, name, ocsp_response, now)?;
        }
        let facts = Facts::read(end_entity)
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadEncoding))?;
        let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &facts.public_key);
        if self.pins.iter().any(|pin| pin.0 == hash.as_ref()) {
            Ok(ServerCertVerified::assertion())
        } else {
            Err(Error::General(
                "the certificate's public key is none of those pinned".to_owned(),
            ))
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

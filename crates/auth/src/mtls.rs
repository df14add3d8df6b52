//! Certificates of clients (mutual TLS).

use std::sync::Arc;

use access::certificate::{Certificate, IdSource, Refused, Rules};
use component::access::{Caller, RequestHead};
use component::definition::Surroundings;
use component::handler::Services;
use config::{Report, Spanned};
use expr::value::{array, integer, object, text};
use message::Fault;

use crate::codes::BAD_WAY;
use crate::config::{CertificateId, MtlsConfig, Texts};
use crate::credential::{Carrier, Credential};
use crate::jwt::texts;
use crate::revocation::{Revocations, Tokens};
use crate::shown_certificate::{ShownCertificate, Unreadable};
use crate::way::{Check, Checked, Properties, Rejection, Way};

/// Certificates that the handshake, or a trusted proxy, has checked.
pub(crate) struct MtlsWay {
    properties: Properties,
    rules: Arc<HolderRules>,
    tokens: Arc<Tokens>,
}

/// Whose certificates are taken. One value for each way and load.
pub(crate) struct HolderRules(Rules);

/// Takes one text of a rule.
type Add = fn(&mut Rules, &str) -> Result<(), &'static str>;

impl MtlsWay {
    /// Reads the way. Every problem is reported.
    pub fn read(
        name: &Arc<str>,
        config: &Spanned<MtlsConfig>,
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let before = report.errors();
        let MtlsConfig {
            subject,
            dns,
            uri,
            email,
            fingerprint,
            issuer,
            id,
        } = &config.value;
        let mut rules = Rules::new();
        let all: [(&str, &Option<Spanned<Texts>>, Add); 6] = [
            ("subject", subject, Rules::subject),
            ("dns", dns, Rules::dns),
            ("uri", uri, Rules::uri),
            ("email", email, Rules::email),
            ("fingerprint", fingerprint, Rules::fingerprint),
            ("issuer", issuer, Rules::issuer),
        ];
        for (key, value, add) in all {
            let Some(value) = value else {
                continue;
            };
            for text in texts(key, value, report) {
                if let Err(problem) = add(&mut rules, &text) {
                    let message = format!(
                        "`{}` cannot be used as `{key}`: {problem}",
                        text.escape_debug()
                    );
                    report.error(BAD_WAY, value.span, message);
                }
            }
        }
        if let Some(id) = id {
            rules.id(match id {
                CertificateId::Uri => IdSource::Uri,
                CertificateId::Dns => IdSource::Dns,
                CertificateId::Email => IdSource::Email,
                CertificateId::CommonName => IdSource::CommonName,
                CertificateId::Subject => IdSource::Subject,
                CertificateId::Fingerprint => IdSource::Fingerprint,
            });
        }
        (report.errors() == before).then(|| Self {
            properties: Properties {
                passes: true,
                tells_apart: true,
                ..Properties::new(name, Carrier::Certificate)
            },
            rules: Arc::new(HolderRules(rules)),
            tokens: Arc::new(Tokens(Revocations::of(surroundings.states))),
        })
    }

    /// Who has shown this certificate.
    fn judge(&self, shown: &ShownCertificate, services: &dyn Services) -> Checked {
        let certificate = match &shown.read {
            Ok(certificate) => certificate,
            Err(Unreadable::Certificate) => return Err(Rejection::Invalid("certificate")),
            Err(Unreadable::Field) => {
                let fault = Fault::invalid("Client-Cert is no certificate");
                let reply = Box::new(fault.to_reply());
                return Err(Rejection::Answered("client_cert", reply));
            }
        };
        let now = services.wall().as_secs();
        if let Some(caller) = shown.caller(&self.rules) {
            return match certificate.is_current(now) {
                true => Ok(caller.into()),
                false => Err(Rejection::Invalid(Refused::Time.name())),
            };
        }
        let id = self.rules.0.check(certificate, now);
        let id = id.map_err(|refused| Rejection::Invalid(refused.name()))?;
        let mut caller = Caller::new(&self.properties.name, id, claims(certificate));
        // The certificate is good to the end of that second.
        caller.expires = Some(certificate.not_after.saturating_add(1));
        caller.revocable = Some(Arc::clone(&self.tokens) as _);
        let caller = Arc::new(caller);
        shown.keep(&self.rules, &caller);
        Ok(caller.into())
    }
}

/// `$auth.claims`
fn claims(certificate: &Certificate) -> expr::Value {
    let names = |names: &[String]| array(names.iter().map(|it| text(it.as_str())));
    let hexadecimal = |it: &u8| format!("{it:02x}");
    let fingerprint: String = certificate.fingerprint.iter().map(hexadecimal).collect();
    let common_name = certificate.subject.common_name();
    let seconds = |time: u64| integer(i64::try_from(time).unwrap_or(i64::MAX));
    let member = |name: &str, value| (name.to_owned(), value);
    object([
        member("subject", text(certificate.subject.to_string())),
        member("common_name", common_name.map_or(expr::Value::Null, text)),
        member("issuer", text(certificate.issuer.to_string())),
        member("dns", names(&certificate.dns)),
        member("uris", names(&certificate.uris)),
        member("emails", names(&certificate.emails)),
        member("fingerprint", text(fingerprint)),
        member("not_before", seconds(certificate.not_before)),
        member("not_after", seconds(certificate.not_after)),
    ])
}

impl Way for MtlsWay {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    /// By whom it belongs to. One that has expired is for the way that would have taken it.
    fn takes(&self, _: &[u8], head: RequestHead<'_>) -> bool {
        let shown = ShownCertificate::of(head);
        let Some(Ok(certificate)) = shown.as_ref().map(|it| it.read.as_ref()) else {
            return false;
        };
        let checked = self.rules.0.check(certificate, certificate.not_after);
        checked.is_ok()
    }

    fn check<'a>(
        &'a self,
        _: Credential<'a>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a> {
        Check::Ready(match ShownCertificate::of(head) {
            Some(shown) => self.judge(&shown, services),
            None => Err(Rejection::Invalid("no_certificate")),
        })
    }
}

#[cfg(test)]
mod tests;

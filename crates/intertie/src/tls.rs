//! Certificates and keys that flow files name: read, checked and put to use.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use component::plan::{ListenerPlan, Plan};
use component::tls::{
    ClientAuth, ClientTls, FileName, IdentityFiles, Protocol, TlsVersion, Verify,
};
use component::upstream::UpstreamPlan;
use config::{Report, Sources, Span};
use net::tls::{
    self, ClientSettings, Identity, Pin, RevocationLists, Roots, ServerSettings, TlsError, Trust,
};
use proxy::TlsTable;

use crate::codes::{BAD_CERTIFICATE, EXPIRES_SOON};
use crate::load::folder_of;
use crate::regular_file;

/// The most bytes of a certificate or key file.
const SIZE_MAX: u64 = 1024 * 1024;
/// How long before its end a certificate is warned about.
const SOON: Duration = Duration::from_secs(14 * 24 * 3600);

/// The TLS of a plan, and the files it was made of.
#[derive(Default)]
pub(crate) struct LoadedTls {
    /// What workers use.
    pub table: Arc<TlsTable>,
    made: Vec<Made>,
    /// With hashes: keys are not kept longer than they are needed.
    files: Vec<(PathBuf, Option<u64>)>,
}

/// Something made of settings and files: made once more it would be another one, and connections
/// made with it would be lost.
struct Made {
    of: String,
    what: What,
}

#[derive(Clone)]
enum What {
    Server(tls::Server),
    Client(tls::Client),
}

impl LoadedTls {
    /// Whether one of the files has changed since it was read.
    pub fn has_changed(&self) -> bool {
        let then = self.files.iter().map(|(_, then)| *then);
        !self.look().into_iter().eq(then)
    }

    /// The hashes of the files as they are now.
    pub fn look(&self) -> Vec<Option<u64>> {
        let now = |path: &PathBuf| {
            let bytes = regular_file::read(path, SIZE_MAX).ok();
            bytes.map(|bytes| hash(&bytes))
        };
        self.files.iter().map(|(path, _)| now(path)).collect()
    }

    /// Takes the files as they were [seen](Self::look) before a load for those that have been read:
    /// what is wrong with them has been told, and is not told again until they change. A file that
    /// changes during the load has changed since.
    pub fn accept(&mut self, seen: Vec<Option<u64>>) {
        for ((_, then), seen) in self.files.iter_mut().zip(seen) {
            *then = seen;
        }
    }

    /// Reads what the plan names, using again what has not changed. Every problem is reported.
    pub fn of_plan(plan: &Plan, before: &Self, sources: &Sources, report: &mut Report) -> Self {
        let mut reader = Reader {
            sources,
            report,
            loaded: Self::default(),
            before,
            now: SystemTime::now(),
        };
        let mut table = TlsTable::default();
        for listener in &plan.listeners {
            if let Some(server) = reader.server(listener) {
                table.servers.push((listener.address.clone(), server));
            }
        }
        for upstream in &plan.upstreams {
            if let Some(clients) = reader.clients(upstream) {
                table.clients.push((Arc::clone(upstream), clients));
            }
        }
        reader.loaded.table = Arc::new(table);
        reader.loaded
    }
}

struct Reader<'a> {
    sources: &'a Sources,
    report: &'a mut Report,
    loaded: LoadedTls,
    before: &'a LoadedTls,
    now: SystemTime,
}

impl Reader<'_> {
    fn server(&mut self, listener: &ListenerPlan) -> Option<tls::Server> {
        let settings = listener.tls.as_ref()?;
        let span = settings.identities.first()?.cert.span;
        let first_file = self.loaded.files.len();
        let identities: Option<Vec<Identity>> = settings
            .identities
            .iter()
            .map(|files| self.identity(files))
            .collect();
        let clients = settings.clients.as_ref();
        let client_auth = match clients {
            None => Some(tls::ClientAuth::None),
            Some(clients) => self.roots(&clients.ca).map(|roots| match clients.auth {
                ClientAuth::Required => tls::ClientAuth::Required(roots),
                ClientAuth::Optional => tls::ClientAuth::Optional(roots),
            }),
        };
        let revoked = clients.map_or_else(|| Some(RevocationLists::default()), |it| self.crls(it));
        let settings_text = format!("{settings:?} {:?}", listener.protocols);
        let made = ServerSettings {
            identities: identities?,
            client_auth: client_auth?,
            revoked: revoked?,
            protocols: protocols(&listener.protocols),
            min_version: min_version(settings.min_version),
        };
        let make = || tls::Server::new(made).map(What::Server);
        match self.make(&settings_text, first_file, span, make)? {
            What::Server(server) => Some(server),
            What::Client(_) => None,
        }
    }

    fn clients(&mut self, upstream: &UpstreamPlan) -> Option<Vec<tls::Client>> {
        let settings = upstream.tls.as_ref()?;
        let span = settings.place?.0;
        let first_file = self.loaded.files.len();
        let identity = match &settings.identity {
            None => None,
            Some(files) => Some(self.identity(files)?),
        };
        let pins = settings.pins.iter().copied().map(Pin).collect();
        let trust = match (settings.verify, &settings.ca) {
            (Verify::Pin, _) => Trust::Pinned(pins),
            (Verify::Chain, Some(ca)) => Trust::Chain(self.roots(ca)?, pins),
            (Verify::Chain, None) => {
                let roots = Roots::of_system();
                Trust::Chain(self.or_report(roots, span)?, pins)
            }
        };
        let name = |at: usize| {
            let own = upstream.endpoints.get(at).map(|it| it.host.as_str());
            let own = settings.server_name.as_deref().or(own);
            // A template has no endpoint yet: each gets its own name.
            own.unwrap_or("template.invalid")
        };
        let made = ClientSettings {
            trust,
            identity,
            protocols: protocols(&upstream.protocols),
            min_version: min_version(settings.min_version),
        };
        let settings_text = format!("{settings:?} {:?} {}", upstream.protocols, name(0));
        let make = || tls::Client::new(name(0), made).map(What::Client);
        let What::Client(first) = self.make(&settings_text, first_file, span, make)? else {
            return None;
        };
        (0..upstream.endpoints.len().max(1))
            .map(|at| {
                let client = first.for_name(name(at));
                self.or_report(client, span)
            })
            .collect()
    }

    /// Makes something, unless it was there before and nothing it is made of has changed.
    fn make(
        &mut self,
        settings: &str,
        first_file: usize,
        span: Span,
        make: impl FnOnce() -> Result<What, TlsError>,
    ) -> Option<What> {
        let files = self.loaded.files.get(first_file..).unwrap_or_default();
        let of = format!("{settings} {files:?}");
        let known = self.before.made.iter().find(|made| made.of == of);
        let what = match known {
            Some(made) => made.what.clone(),
            None => {
                let made = make();
                self.or_report(made, span)?
            }
        };
        self.loaded.made.push(Made {
            of,
            what: what.clone(),
        });
        Some(what)
    }

    fn identity(&mut self, files: &IdentityFiles) -> Option<Identity> {
        let cert = self.read(&files.cert);
        let key = self.read(&files.key);
        let identity = Identity::from_pem(&cert?, &key?, self.now);
        let identity = self.or_report(identity, files.cert.span)?;
        if let Ok(left) = identity.expires().duration_since(self.now)
            && left < SOON
        {
            let days = left.as_secs() / 86_400;
            let message = format!("the certificate ends in {days} days");
            self.report
                .warning(EXPIRES_SOON, files.cert.span, message)
                .hint("renew it; the file is read again when it changes");
        }
        Some(identity)
    }

    fn crls(&mut self, clients: &ClientTls) -> Option<RevocationLists> {
        let mut lists = RevocationLists::new(clients.crl_leaf_only);
        for file in &clients.crls {
            let before = lists.expires();
            let bytes = self.read(file)?;
            let added = lists.add(&bytes);
            self.or_report(added, file.span)?;
            let expires = lists.expires().filter(|it| Some(*it) != before);
            let Some(expires) = expires else {
                continue;
            };
            // It may be replaced while the engine runs, so this is no reason not to start.
            if expires <= self.now {
                let message = "the list of revoked certificates has ended: no client gets in";
                self.report
                    .warning(EXPIRES_SOON, file.span, message)
                    .hint("fetch a new one; the file is read again when it changes");
            }
        }
        Some(lists)
    }

    fn roots(&mut self, file: &FileName) -> Option<Roots> {
        let bytes = self.read(file)?;
        let roots = Roots::from_pem(&bytes);
        self.or_report(roots, file.span)
    }

    /// Reads a file whose name is relative to the flow file that names it.
    fn read(&mut self, file: &FileName) -> Option<Vec<u8>> {
        let path = folder_of(self.sources.name(file.span.source)).join(&file.path);
        let result = regular_file::read(&path, SIZE_MAX);
        let bytes = match result {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                let message = format!("`{}` cannot be read: {error}", file.path);
                self.report
                    .error(BAD_CERTIFICATE, file.span, message)
                    .hint("the name is relative to this flow file's folder");
                None
            }
        };
        let hash = bytes.as_deref().map(hash);
        self.loaded.files.push((path, hash));
        bytes
    }

    fn or_report<T>(&mut self, result: Result<T, TlsError>, span: Span) -> Option<T> {
        result
            .map_err(|error| {
                self.report
                    .error(BAD_CERTIFICATE, span, error.message)
                    .hint(error.hint);
            })
            .ok()
    }
}

/// A hash that tells whether a file has changed.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

fn protocols(protocols: &[Protocol]) -> Vec<tls::Protocol> {
    let ours = |protocol: &Protocol| match protocol {
        Protocol::Http1 => tls::Protocol::Http1,
        Protocol::Http2 => tls::Protocol::Http2,
    };
    protocols.iter().map(ours).collect()
}

fn min_version(version: TlsVersion) -> tls::MinVersion {
    match version {
        TlsVersion::Tls12 => tls::MinVersion::Tls12,
        TlsVersion::Tls13 => tls::MinVersion::Tls13,
    }
}

//! The settings of the way.

use std::sync::Arc;
use std::time::Duration;

use access::jwt::Algorithm;
use access::oidc::{IdTokenRules, LogoutTokenRules};
use access::sealer::Sealer;
use component::access::AccessPage;
use component::audit::Audit;
use component::definition::Surroundings;
use component::state::StateKey;
use component::trigger::Methods;
use config::{Report, Span, Spanned};
use message::Method;
use steps::{Assertion, FixedUrl, KeyedStateHandle, basic_authorization};
use tokio::sync::Semaphore;

use super::pages::{FORM_MAX, Kind, Page};
use super::provider::{CONCURRENT_MAX, ClientAuth, Provider};
use super::replies::Cookies;
use super::store::{Disk, SessionStore};
use super::{Core, OidcWay};
use crate::clear_text;
use crate::codes::BAD_WAY;
use crate::config::OidcConfig;
use crate::credential::Carrier;
use crate::failed_checks::Guesses;
use crate::issuer_keys::{DescribedKeys, Fetcher, KeysLocation, KeysOrigin, description_url};
use crate::page_path;
use crate::revocation::Revocations;
use crate::timing;
use crate::way::Properties;

/// By how many seconds the clocks of provider and engine may differ.
const CLOCK_SKEW: u64 = 30;
const DAY: Duration = Duration::from_secs(24 * 3600);

impl OidcWay {
    /// Reads the way. Every problem is reported.
    pub fn read(
        name: &Arc<str>,
        spanned: &Spanned<OidcConfig>,
        passes: bool,
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let before = report.errors();
        let config = &spanned.value;
        check_name(name, spanned.span, report);
        let origin = origin(&config.public_url, report);
        let paths = Paths::read(config, report);
        let scope = scope(config.scope.as_ref(), report);
        let (minute, year) = (Duration::from_secs(60), 365 * DAY);
        let idle = timing::time("idle", config.idle.as_ref(), (minute, 90 * DAY), report);
        let lifetime = config.lifetime.as_ref();
        let lifetime = timing::time("lifetime", lifetime, (minute, year), report);
        let provider = provider(name, config, surroundings, report);
        let Some(sealer) = Sealer::random() else {
            let message = "the system has no random bytes to encrypt logins by";
            report.error(BAD_WAY, spanned.span, message);
            return None;
        };
        let (provider, origin) = (provider?, origin?);
        if report.errors() > before {
            return None;
        }
        let parties = format!("{name}\n{}\n{}", provider.issuer, provider.client_id);
        let sessions = StateKey {
            // All that a session or its caller depends on.
            settings: format!("{parties}\n{origin} {:?} {:?}", config.id, config.plan),
            ..StateKey::shared(name, "auth_oidc")
        };
        let states = surroundings.states;
        let cookies = Cookies::new(name, origin.starts_with("https://"));
        let carrier = Carrier::Cookie(cookies.session.as_str().into());
        let core = Arc::new(Core {
            name: Arc::clone(name),
            provider,
            origin,
            callback: paths.callback.0.clone(),
            signed_out: config.signed_out.as_ref().map(|it| it.value.clone()),
            scope,
            id: config.id.clone().unwrap_or_else(|| "sub".to_owned()),
            plan: config.plan.clone(),
            idle: idle.map_or(3600, |it| it.as_secs()),
            lifetime: lifetime.map_or(12 * 3600, |it| it.as_secs()),
            cookies,
            store: states.get(sessions, || SessionStore::new(sealer)),
            disk: Disk::new(KeyedStateHandle::new(states, true), parties),
            guesses: Guesses::of(states),
            revocations: Revocations::of(states),
            audit: Audit::of(states),
        });
        let pages = paths.pages(&core);
        Some(Self {
            core,
            properties: Properties {
                passes,
                needs_message: true,
                ..Properties::new(name, carrier)
            },
            pages,
        })
    }
}

/// The provider as this client sees it.
fn provider(
    name: &Arc<str>,
    config: &OidcConfig,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Option<Provider> {
    for text in [&config.issuer, &config.client_id] {
        check_text(text, report);
    }
    let (issuer, client_id) = (&config.issuer.value, &config.client_id.value);
    let timeout = timing::timeout(config.timeout.as_ref(), report);
    let auth = client_auth(config, surroundings, report);
    let read = |url: &Spanned<String>, report: &mut Report| {
        let how = ("auth", timeout);
        let read = FixedUrl::read(url, config.tls.as_ref(), how, BAD_WAY, report)?;
        clear_text::warn(url, "the OpenID provider", report);
        Some(read)
    };
    let token_url = config.token_url.as_ref().map(|it| read(it, report));
    let location = KeysLocation::Discovery {
        description: read(&description_url(&config.issuer), report)?,
        issuer: issuer.clone(),
        keys: match (&config.jwks, &config.jwks_origin) {
            (None, None) => DescribedKeys::Own,
            (None, Some(origin)) => {
                DescribedKeys::OnOrigin(KeysOrigin::read(origin, read, report)?)
            }
            (Some(jwks), None) => DescribedKeys::At(read(jwks, report)?),
            (Some(_), Some(origin)) => {
                let message = "`jwks_origin` has no effect beside `jwks`";
                report
                    .error(BAD_WAY, origin.span, message)
                    .hint("write one of them");
                return None;
            }
        },
    };
    let fetcher = Fetcher::new(name, location, Algorithm::Rs256, surroundings.states);
    Some(Provider {
        way: Arc::clone(name),
        issuer: issuer.clone(),
        client_id: client_id.clone(),
        auth: auth?,
        fetcher: Arc::new(fetcher),
        token_url: token_url.flatten(),
        id_rules: IdTokenRules::new(issuer, client_id, CLOCK_SKEW),
        logout_rules: LogoutTokenRules::new(issuer, client_id, CLOCK_SKEW),
        timeout,
        turns: Semaphore::new(CONCURRENT_MAX),
    })
}

/// The name of the way is part of the names of its cookies.
fn check_name(name: &str, span: Span, report: &mut Report) {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    if name.len() > 64 || !name.bytes().all(is_part) {
        let message = format!(
            "`{}` cannot be part of a cookie's name",
            name.escape_debug()
        );
        let hint = "use letters, digits, `-` and `_`, at most 64";
        report.error(BAD_WAY, span, message).hint(hint);
    }
}

fn check_text(text: &Spanned<String>, report: &mut Report) {
    if text.value.is_empty() || text.value.contains(char::is_control) {
        // The value itself must not be shown.
        let message = "this is empty or has a line break";
        let hint = "is there a line break at its end?";
        report.error(BAD_WAY, text.span, message).hint(hint);
    }
}

/// The origin of `public_url` as browsers write it (RFC 6454, section 6.2).
fn origin(url: &Spanned<String>, report: &mut Report) -> Option<String> {
    let refuse = |message: &str, hint: &str, report: &mut Report| {
        report.error(BAD_WAY, url.span, message).hint(hint);
        None
    };
    let lower = url.value.trim_end_matches('/').to_ascii_lowercase();
    let Some((scheme, authority)) = lower.split_once("://") else {
        return refuse("`public_url` has no scheme", "write `https://HOST`", report);
    };
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-.:[]".contains(&byte);
    if authority.is_empty() || !authority.bytes().all(is_part) {
        let message = "`public_url` is a scheme, a host and a port, without a path";
        return refuse(message, "such as `https://shop.example`", report);
    }
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if port.is_some_and(|port| port.parse::<u16>().is_err()) || host.is_empty() {
        return refuse(
            "`public_url` has no port that is one",
            "such as `:8443`",
            report,
        );
    }
    let usual = match scheme {
        "https" => "443",
        "http" if matches!(host, "localhost" | "[::1]") || host.starts_with("127.") => "80",
        _ => {
            let message = "`public_url` must be `https`";
            let hint = "session cookies go over TLS; `http` is for `localhost` alone";
            return refuse(message, hint, report);
        }
    };
    Some(match port.filter(|it| *it != usual) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

fn scope(scope: Option<&Spanned<String>>, report: &mut Report) -> String {
    let Some(scope) = scope else {
        return "openid".to_owned();
    };
    let names: Vec<&str> = scope.value.split(' ').filter(|it| !it.is_empty()).collect();
    if !names.contains(&"openid") || scope.value.contains(char::is_control) {
        let message = "`scope` must have `openid`: without it there is no ID token";
        report
            .error(BAD_WAY, scope.span, message)
            .hint("write `openid profile`, for example");
    }
    names.join(" ")
}

fn client_auth(
    config: &OidcConfig,
    surroundings: &Surroundings<'_>,
    report: &mut Report,
) -> Option<ClientAuth> {
    match (&config.client_secret, &config.private_key) {
        (Some(secret), None) => {
            check_text(secret, report);
            let id = &config.client_id.value;
            Some(ClientAuth::Secret(basic_authorization(id, &secret.value)))
        }
        (None, Some(key)) => {
            let parties = (
                config.client_id.value.as_str(),
                config.issuer.value.as_str(),
            );
            let read = Assertion::read(&key.value, parties, surroundings, BAD_WAY, report);
            read.map(|it| ClientAuth::Key(Box::new(it)))
        }
        (None, None) => Some(ClientAuth::Public),
        (Some(_), Some(key)) => {
            let message = "`private_key` has no effect beside `client_secret`";
            report
                .error(BAD_WAY, key.span, message)
                .hint("write one of them");
            None
        }
    }
}

/// The paths of the way's pages, and where they are written.
struct Paths {
    callback: (String, Span),
    logout: Option<(String, Span)>,
    backchannel: Option<(String, Span)>,
}

impl Paths {
    fn read(config: &OidcConfig, report: &mut Report) -> Self {
        let mut of = |path: &Spanned<String>| {
            page_path::check(path, BAD_WAY, report);
            (path.value.clone(), path.span)
        };
        let usual = || ("/login/callback".to_owned(), config.issuer.span);
        let all = Self {
            callback: config.callback.as_ref().map_or_else(usual, &mut of),
            logout: config.logout.as_ref().map(&mut of),
            backchannel: config.backchannel_logout.as_ref().map(&mut of),
        };
        if let Some(path) = &config.signed_out {
            of(path);
            if all.logout.is_none() {
                let message = "`signed_out` has no effect without `logout`";
                report
                    .error(BAD_WAY, path.span, message)
                    .hint("add `logout`, or leave it out");
            }
        }
        let several = [
            Some(&all.callback),
            all.logout.as_ref(),
            all.backchannel.as_ref(),
        ];
        let several: Vec<_> = several.into_iter().flatten().collect();
        for (at, (path, span)) in several.iter().enumerate() {
            if several.iter().take(at).any(|(other, _)| other == path) {
                report.error(BAD_WAY, *span, "two pages of the way have one path");
            }
        }
        all
    }

    fn pages(&self, core: &Arc<Core>) -> Vec<AccessPage> {
        let page = |(path, span): &(String, Span), kind: Kind, methods: &[Method]| AccessPage {
            way: Arc::clone(&core.name),
            methods: Methods::Only(methods.to_vec()),
            path: page_path::pattern(path),
            handler: Arc::new(Page {
                core: Arc::clone(core),
                kind,
            }),
            body_max: FORM_MAX,
            span: *span,
        };
        let both = [Method::Get, Method::Post];
        let callback = page(&self.callback, Kind::Callback, &[Method::Get]);
        let logout = self.logout.iter().map(|it| page(it, Kind::Logout, &both));
        let backchannel = self.backchannel.iter();
        let backchannel = backchannel.map(|it| page(it, Kind::Backchannel, &[Method::Post]));
        std::iter::once(callback)
            .chain(logout)
            .chain(backchannel)
            .collect()
    }
}

//! JSON Web Tokens as bearer tokens.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use access::jwt::{
    Algorithm, Audience, CachedToken, KEYS_MAX, Key, KeySet, Refused, Rules, SeenTokens, Signed,
    Snapshot, TokenHash, Verifier, claimed_issuer,
};
use component::access::{Caller, RequestHead};
use component::audit::Audit;
use component::definition::Surroundings;
use component::handler::Services;
use component::resources::Resource;
use component::source::SourcePlan;
use component::state::{State, StateKey};
use component::upstream::UpstreamPlan;
use config::{Report, Span, Spanned};
use steps::FixedUrl;

use crate::claims;
use crate::clear_text;
use crate::codes::BAD_WAY;
use crate::config::{JwtConfig, Texts};
use crate::credential::{Carrier, Credential, TokenSources};
use crate::failed_checks::Guesses;
use crate::in_force::InForce;
use crate::issuer_keys::{DescribedKeys, Fetcher, KeysLocation, KeysOrigin, description_url};
use crate::key_file::{read_file, shared_file, source_name};
use crate::possession::Possession;
use crate::revocation::Revocations;
use crate::token_keys::{KeySetFile, TokenKeys, TokensOfKey};
use crate::way::{Check, Checked, Properties, Rejection, Way};

/// The most bytes of verified tokens that each worker remembers: some 30,000 of usual ones.
const CACHE_BYTES: usize = 128 * 1024 * 1024;
/// How many verified tokens all workers remember together.
const SEEN_MAX: usize = 65_536;
/// How long a fetch of keys may take, each of its requests.
const FETCH: Duration = Duration::from_secs(4);

/// Tokens of one issuer.
pub(crate) struct JwtWay {
    properties: Properties,
    issuers: Vec<String>,
    guesses: Arc<Guesses>,
    possession: Possession,
    /// What each worker keeps a cache of verified tokens for.
    rules: Arc<TokenRules>,
    seen: Arc<Seen>,
    audit: Arc<Audit>,
}

/// What is demanded of a token and what is made of it.
struct TokenRules {
    way: Arc<str>,
    rules: Arc<Rules>,
    id: String,
    plan: Option<String>,
    keys: TokenKeys,
    in_force: InForce<TokenKeys>,
    revocations: Arc<Revocations>,
    /// All that tells these rules from others.
    settings: String,
}

/// The verified tokens of a worker.
struct Verified {
    /// Each with its caller: none where a claim is missing that says who it is.
    verifier: RefCell<Verifier<Option<Arc<Caller>>>>,
    /// What revokes the tokens of each key, made with its first one.
    of_keys: RefCell<Vec<Arc<TokensOfKey>>>,
}

impl Resource for Verified {}

/// The tokens of a way that some worker has verified. They are asked for only when the address of a
/// request has no checks left.
struct Seen(Mutex<SeenTokens>);

impl Seen {
    fn tokens(&self) -> MutexGuard<'_, SeenTokens> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, token: &[u8]) -> bool {
        let hash = TokenHash::of(token);
        self.tokens().has(hash)
    }

    fn note(&self, token: &[u8]) {
        let hash = TokenHash::of(token);
        self.tokens().note(hash);
    }
}

impl State for Seen {}

impl JwtWay {
    /// Reads the way. Every problem is reported.
    pub fn read(
        name: &Arc<str>,
        config: &Spanned<JwtConfig>,
        passes: bool,
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<Self> {
        let before = report.errors();
        let reading = Reading {
            name,
            config: &config.value,
            span: config.span,
        };
        let issuers = texts("issuer", &config.value.issuer, report);
        let audience = reading.audience(report);
        let skew = reading.clock_skew(report);
        let sources = TokenSources::read(&config.value.also_in, report);
        let keys = reading.keys(&issuers, surroundings, report);
        let (keys, audience) = (keys?, audience?);
        if report.errors() > before {
            return None;
        }
        let mut rules = Rules::new(issuers.clone(), audience).with_clock_skew(skew);
        if let Some(types) = &config.value.types {
            let types: Vec<&str> = types.iter().map(String::as_str).collect();
            rules = rules.with_types(&types);
        }
        let (id, plan) = (&config.value.id, &config.value.plan);
        let of_keys = reading.settings_of_keys();
        let settings = format!("{name} {rules:?} {id:?} {plan:?} {of_keys}");
        let possession = Possession::of(name, config.value.dpop.as_ref(), surroundings);
        let seen = StateKey {
            settings: settings.clone(),
            ..StateKey::shared(name, "auth_seen_tokens")
        };
        let new = || Seen(Mutex::new(SeenTokens::new(SEEN_MAX)));
        Some(Self {
            properties: Properties {
                passes,
                token_sources: sources,
                dpop: possession.dpop,
                tells_apart: true,
                recalls: true,
                ..Properties::new(name, Carrier::Bearer)
            },
            issuers,
            seen: surroundings.states.get(seen, new),
            guesses: Guesses::of(surroundings.states),
            possession,
            rules: Arc::new(TokenRules {
                way: Arc::clone(name),
                rules: Arc::new(rules),
                id: id.clone().unwrap_or_else(|| "sub".to_owned()),
                plan: plan.clone(),
                keys,
                in_force: InForce::of(name, "keys_in_force", surroundings.states),
                revocations: Revocations::of(surroundings.states),
                settings,
            }),
            audit: Audit::of(surroundings.states),
        })
    }

    fn verified(&self, services: &dyn Services) -> Rc<Verified> {
        let settings = |rules: &TokenRules| rules.settings.clone();
        services.resources().get(&self.rules, settings, || {
            let verifier = Verifier::new(Arc::clone(&self.rules.rules), CACHE_BYTES);
            Rc::new(Verified {
                verifier: RefCell::new(verifier),
                of_keys: RefCell::default(),
            })
        })
    }

    /// Whose token it is that has been verified, if its holder may use it.
    fn holder(
        &self,
        known: CachedToken<Option<Arc<Caller>>>,
        credential: &Credential<'_>,
        shown: (RequestHead<'_>, &dyn Services),
    ) -> Checked {
        self.possession.confirm(known.holder(), credential, shown)?;
        let caller = known.into_value();
        caller.map(Into::into).ok_or(Rejection::Invalid("no_id"))
    }

    /// Verifies a token by these keys. One that this worker has verified before costs nothing, and
    /// one that any worker has verified is taken from addresses that send wrong ones too.
    fn verify(
        &self,
        credential: &Credential<'_>,
        keys: &Snapshot,
        (head, services): (RequestHead<'_>, &dyn Services),
    ) -> Result<Checked, Refused> {
        let token = &credential.value;
        let verified = self.verified(services);
        let mut verifier = verified.verifier.borrow_mut();
        let now = services.wall().as_secs();
        let rules = &*self.rules;
        let known = match verifier.known(token, keys.generation(), now) {
            Some(known) => known,
            None => {
                if let Err(limited) = self.guesses.look(head.peer, services.now())
                    && !self.seen.has(token)
                {
                    return Ok(Err(limited));
                }
                let known = verifier.verify(token, keys, now, |it| {
                    rules.caller(it, &mut verified.of_keys.borrow_mut())
                })?;
                self.seen.note(token);
                known
            }
        };
        drop(verifier);
        Ok(self.holder(known, credential, (head, services)))
    }

    /// The same where other keys may have to be fetched first.
    async fn verify_later(
        &self,
        credential: Credential<'_>,
        seen: Option<u64>,
        (head, services): (RequestHead<'_>, &dyn Services),
    ) -> Checked {
        let missing = match seen {
            None => Rejection::Unavailable("no_keys"),
            Some(_) => Rejection::Invalid(Refused::UnknownKey.name()),
        };
        let TokenKeys::Fetched(fetcher) = &self.rules.keys else {
            return Err(missing);
        };
        if !fetcher.newer(seen, services).await {
            return Err(missing);
        }
        let Some(keys) = fetcher.keys.current(services.now()) else {
            return Err(Rejection::Unavailable("no_keys"));
        };
        match self.verify(&credential, &keys, (head, services)) {
            Ok(checked) => checked,
            Err(refused) => Err(self.refuse(refused, (head.peer, services))),
        }
    }

    /// Notes what could be a guess, or has cost a check. A token that has expired, or is for
    /// somebody else, is neither; nor is one whose key is not known, which may be the issuer's
    /// fault.
    fn refuse(&self, refused: Refused, (peer, services): (IpAddr, &dyn Services)) -> Rejection {
        let counts = matches!(
            refused,
            Refused::Malformed | Refused::Critical | Refused::Algorithm | Refused::Signature
        );
        if counts {
            self.guesses.failed(peer, services.now());
        }
        Rejection::Invalid(refused.name())
    }
}

impl TokenRules {
    fn caller(
        &self,
        token: &Signed<'_>,
        of_keys: &mut Vec<Arc<TokensOfKey>>,
    ) -> Option<Arc<Caller>> {
        let tokens = self.tokens_of(token.key, of_keys);
        let plan = self.plan.as_deref();
        let mut caller = claims::caller_of_token(&self.way, &self.id, plan, token)?;
        caller.expires = Some(token.expires);
        caller.revocable = Some(tokens);
        Some(Arc::new(caller))
    }

    /// What revokes the tokens of a key.
    fn tokens_of(&self, key: &Arc<Key>, known: &mut Vec<Arc<TokensOfKey>>) -> Arc<TokensOfKey> {
        let found = known.iter().find(|it| Arc::ptr_eq(&it.key, key));
        if let Some(found) = found {
            return Arc::clone(found);
        }
        // Those of keys that were replaced are forgotten; each caller has its own.
        if known.len() >= KEYS_MAX {
            known.clear();
        }
        let new = Arc::new(TokensOfKey {
            revocations: Arc::clone(&self.revocations),
            in_force: self.in_force.clone(),
            key: Arc::clone(key),
        });
        known.push(Arc::clone(&new));
        new
    }
}

impl Way for JwtWay {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn takes(&self, token: &[u8], _: RequestHead<'_>) -> bool {
        let issuer = claimed_issuer(token);
        issuer.is_some_and(|issuer| self.issuers.contains(&issuer))
    }

    /// Tokens are compared whole with verified ones, so that their characters need no check.
    fn recall(
        &self,
        credential: &Credential<'_>,
        head: RequestHead<'_>,
        services: &dyn Services,
    ) -> Option<Checked> {
        let generation = self.rules.keys.generation(services)?;
        let now = services.wall().as_secs();
        let verified = self.verified(services);
        let mut verifier = verified.verifier.borrow_mut();
        let known = verifier.known(&credential.value, generation, now)?;
        drop(verifier);
        Some(self.holder(known, credential, (head, services)))
    }

    fn check<'a>(
        &'a self,
        credential: Credential<'a>,
        head: RequestHead<'a>,
        services: &'a dyn Services,
    ) -> Check<'a> {
        let at = (head, services);
        let keys = self.rules.keys.current(services.now());
        let seen = match &keys {
            Some(keys) => match self.verify(&credential, keys, at) {
                Ok(checked) => return Check::Ready(checked),
                Err(Refused::UnknownKey) => Some(keys.generation()),
                Err(refused) => {
                    return Check::Ready(Err(self.refuse(refused, (head.peer, services))));
                }
            },
            None => None,
        };
        Check::Pending(Box::pin(self.verify_later(credential, seen, at)))
    }

    fn source(&self) -> Option<SourcePlan> {
        let Self { rules, audit, .. } = self;
        let name = &self.properties.name;
        let told = (&rules.revocations, audit);
        Some(rules.keys.source(name, &rules.in_force, told))
    }

    fn upstreams(&self) -> Vec<&Arc<UpstreamPlan>> {
        self.rules.keys.upstreams()
    }
}

/// Texts of which none is empty.
pub(crate) fn texts(name: &str, texts: &Spanned<Texts>, report: &mut Report) -> Vec<String> {
    let all = texts.value.to_vec();
    if all.is_empty() || all.iter().any(String::is_empty) {
        let message = format!("`{name}` is empty");
        report.error(BAD_WAY, texts.span, message);
    }
    all
}

struct Reading<'a> {
    name: &'a Arc<str>,
    config: &'a JwtConfig,
    span: Span,
}

impl Reading<'_> {
    /// All that tells these keys from others, but for a secret: of other keys the tokens are
    /// others.
    fn settings_of_keys(&self) -> String {
        let value = |it: &Option<Spanned<String>>| it.as_ref().map(|it| it.value.clone());
        let config = self.config;
        let (jwks, origin) = (value(&config.jwks), value(&config.jwks_origin));
        let (algorithm, tls) = (value(&config.algorithm), &config.tls);
        format!("{jwks:?} {origin:?} {algorithm:?} {tls:?}")
    }

    fn audience(&self, report: &mut Report) -> Option<Audience> {
        match (&self.config.audience, &self.config.client_id) {
            (Some(audience), None) => Some(Audience::OneOf(texts("audience", audience, report))),
            (None, Some(clients)) => Some(Audience::Clients(texts("client_id", clients, report))),
            (Some(_), Some(clients)) => {
                let message = "`client_id` has no effect beside `audience`";
                report
                    .error(BAD_WAY, clients.span, message)
                    .hint("`client_id` is for issuers whose tokens have no `aud`");
                None
            }
            (None, None) => {
                let message = "`audience` is missing: tokens for other services would come in";
                report
                    .error(BAD_WAY, self.span, message)
                    .hint("write what `aud` of your tokens says, such as `audience: intertie`");
                None
            }
        }
    }

    fn clock_skew(&self, report: &mut Report) -> u64 {
        let Some(skew) = &self.config.clock_skew else {
            return 30;
        };
        let time = skew.value.0;
        if time > Duration::from_secs(600) {
            let message = "`clock_skew` is above 10m";
            report
                .error(BAD_WAY, skew.span, message)
                .hint("expired tokens would be taken for so long");
        }
        time.as_secs()
    }

    fn algorithm(&self, usual: Algorithm, report: &mut Report) -> Option<Algorithm> {
        let Some(name) = &self.config.algorithm else {
            return Some(usual);
        };
        let found = Algorithm::of(&name.value);
        let found = found.filter(|it| it.is_symmetric() == usual.is_symmetric());
        if found.is_none() {
            let message = format!(
                "`{}` is no algorithm for these keys",
                name.value.escape_debug()
            );
            let hint = match usual.is_symmetric() {
                true => "with `secret`: HS256, HS384 or HS512",
                false => {
                    "for RSA: RS256, RS384, RS512, PS256, PS384 or PS512; keys of curves have \
                     their own"
                }
            };
            report.error(BAD_WAY, name.span, message).hint(hint);
        }
        found
    }

    fn keys(
        &self,
        issuers: &[String],
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<TokenKeys> {
        let finds_keys = self.config.secret.is_none() && self.config.jwks.is_none();
        if let Some(origin) = self.config.jwks_origin.as_ref().filter(|_| !finds_keys) {
            let message = "`jwks_origin` has no effect: the keys are not looked for";
            let hint = "leave it out; it is for issuers without `jwks` and `secret`";
            report.error(BAD_WAY, origin.span, message).hint(hint);
        }
        if let Some(secret) = &self.config.secret {
            return self.secret(secret, report);
        }
        let rsa = self.algorithm(Algorithm::Rs256, report)?;
        match &self.config.jwks {
            Some(place) if !place.value.contains("://") => {
                self.refuse_tls("keys of a file", report);
                self.file(place, rsa, surroundings, report)
            }
            Some(place) => {
                let url = self.url(place, report)?;
                Some(self.fetched(KeysLocation::Jwks(url), rsa, surroundings))
            }
            None => {
                let [issuer] = issuers else {
                    let message = "several issuers need `jwks`: where their keys are";
                    report.error(BAD_WAY, self.config.issuer.span, message);
                    return None;
                };
                let issuer = Spanned {
                    value: issuer.clone(),
                    span: self.config.issuer.span,
                };
                let description = self.url(&description_url(&issuer), report)?;
                let url = |url: &_, report: &mut _| self.url(url, report);
                let keys = match &self.config.jwks_origin {
                    Some(origin) => DescribedKeys::OnOrigin(KeysOrigin::read(origin, url, report)?),
                    None => DescribedKeys::Own,
                };
                let location = KeysLocation::Discovery {
                    description,
                    issuer: issuer.value,
                    keys,
                };
                Some(self.fetched(location, rsa, surroundings))
            }
        }
    }

    fn refuse_tls(&self, what: &str, report: &mut Report) {
        if let Some(tls) = &self.config.tls {
            let message = format!("`tls` has no effect on {what}");
            report
                .error(BAD_WAY, tls.span, message)
                .hint("leave it out");
        }
    }

    fn secret(&self, secret: &Spanned<String>, report: &mut Report) -> Option<TokenKeys> {
        if let Some(jwks) = &self.config.jwks {
            let message = "`jwks` has no effect beside `secret`";
            report
                .error(BAD_WAY, jwks.span, message)
                .hint("write one of them");
            return None;
        }
        self.refuse_tls("a secret", report);
        let algorithm = self.algorithm(Algorithm::Hs256, report)?;
        match Key::of_secret(secret.value.as_bytes(), algorithm) {
            Ok(key) => Some(TokenKeys::Secret(Snapshot::new(KeySet::of(vec![key])))),
            Err(problem) => {
                // The value itself must not be shown.
                let message = format!("`secret` cannot be used: {}", problem.explanation());
                report.error(BAD_WAY, secret.span, message);
                None
            }
        }
    }

    fn file(
        &self,
        name: &Spanned<String>,
        rsa: Algorithm,
        surroundings: &Surroundings<'_>,
        report: &mut Report,
    ) -> Option<TokenKeys> {
        let hint = "a set of public keys (JWK Set), as the issuer publishes it";
        let keys = read_file::<KeySetFile>(name, &rsa, hint, surroundings, report)?;
        let path = surroundings.path(name);
        let key = StateKey {
            settings: format!("{rsa:?}"),
            ..StateKey::shared(&path.to_string_lossy(), "token_keys")
        };
        let (target, content) = (source_name(self.name), (rsa, keys));
        let file = shared_file(&target, (key, path), content, surroundings.states);
        Some(TokenKeys::File(file))
    }

    fn url(&self, url: &Spanned<String>, report: &mut Report) -> Option<FixedUrl> {
        let tls = self.config.tls.as_ref();
        let read = FixedUrl::read(url, tls, ("auth", FETCH), BAD_WAY, report)?;
        clear_text::warn(url, "the issuer of tokens", report);
        Some(read)
    }

    fn fetched(
        &self,
        location: KeysLocation,
        rsa: Algorithm,
        surroundings: &Surroundings<'_>,
    ) -> TokenKeys {
        let fetcher = Fetcher::new(self.name, location, rsa, surroundings.states);
        TokenKeys::Fetched(Arc::new(fetcher))
    }
}

#[cfg(test)]
mod tests;

//! OpenID Connect logins of browsers: the relying party's side of the code flow with PKCE (OpenID
//! Connect Core 1.0, section 3.1; RFC 7636), without input or output.
//!
//! A [`Login`] in progress is sealed into a cookie by a [`Sealer`](crate::sealer::Sealer), so that
//! strangers cost no memory. Its [`Callback`] is checked against it, an ID token by
//! [`IdTokenRules`]. [`Sessions`] is what is kept of those who have logged in; a
//! [`LogoutTokenRules`] reads what the provider says about the end of theirs. [`browser`] tells
//! navigations and same-origin requests from others.

pub mod browser;
mod description;
mod id_token;
mod login;
mod logout_token;
mod logouts;
mod sessions;
mod tokens;
mod url;

pub use description::{Description, DescriptionProblem};
pub use id_token::{Expected, IdToken, IdTokenProblem, IdTokenRules};
pub use login::{Callback, LOGIN_SECONDS, Login, LoginProblem};
pub use logout_token::{LOGOUT_TOKEN_SECONDS, LogoutToken, LogoutTokenProblem, LogoutTokenRules};
pub use logouts::{LogoutOf, LogoutUnderWay, LogoutWritten, SessionRead};
pub use sessions::{Limits, Session, SessionKey, Sessions, StoredSession};
pub use tokens::{TokenAnswer, TokenProblem};
pub use url::{form, local_target, with_parameters};

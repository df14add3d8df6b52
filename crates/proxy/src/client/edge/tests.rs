//! What replies get, own ones and those that are relayed.

use component::cors::CorsConfig;
use component::security_headers::SecurityHeadersConfig;
use config::Spanned;

use super::*;

//! What expressions may use that stand outside the steps of a flow: in a source that asks another
//! system again and again, or in a document beside flows.

use std::sync::Arc;

use expr::Value;
use expr::jq::Limits;

use crate::exchange::FlowContext;
use crate::scope::Scope;

/// What expressions outside steps may use.
pub struct Evaluation {
    /// The declared names of the environment and of secrets.
    names: Scope,
    env: Value,
    secrets: Value,
    limits: Limits,
}

impl Default for Evaluation {
    /// Nothing is declared.
    fn default() -> Self {
        let nothing = || expr::value::object([]);
        Self::new(Scope::default(), (nothing(), nothing()), Limits::default())
    }
}

impl Evaluation {
    /// With these names of the environment and of secrets, their values, and what one evaluation
    /// may cost.
    pub fn new(names: Scope, (env, secrets): (Value, Value), limits: Limits) -> Self {
        Self {
            names,
            env,
            secrets,
            limits,
        }
    }

    /// The names that every expression may use; more can be declared.
    pub fn scope(&self) -> Scope {
        self.names.clone()
    }

    /// The values of the environment and of secrets. Copies are cheap.
    pub fn values(&self) -> (Value, Value) {
        (self.env.clone(), self.secrets.clone())
    }

    /// What the messages of something of this name share, whose expressions have been compiled with
    /// this scope.
    pub fn context(&self, name: &str, scope: &Scope) -> Arc<FlowContext> {
        Arc::new(FlowContext {
            env: self.env.clone(),
            secrets: self.secrets.clone(),
            limits: self.limits,
            slots: scope.slots(),
            ..FlowContext::new(name)
        })
    }
}

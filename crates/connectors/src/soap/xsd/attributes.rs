//! The attributes of complex types.

use std::sync::Arc;

use expr::xml::XML_NAMESPACE;

use crate::soap::names::{QName, XS};
use crate::soap::problem::Problem;
use crate::soap::xsd::compile::{Compiler, check_name};
use crate::soap::xsd::components::{Component, Kind};
use crate::soap::xsd::model::AttributeUse;

impl<'a> Compiler<'a> {
    /// The attributes within a type, group or derivation, and whether each is prohibited there.
    pub(super) fn read_attributes(
        &mut self,
        around: Component<'a>,
        found: &mut Vec<(AttributeUse, bool)>,
        any: &mut bool,
    ) -> Result<(), Problem> {
        let document = around.document;
        self.enter(&document.place(around.node))?;
        for node in &around.node.children {
            if node.namespace.as_deref() != Some(XS) {
                continue;
            }
            let component = Component { document, node };
            match node.name.as_str() {
                "attribute" => found.push(self.attribute(component)?),
                "anyAttribute" => *any = true,
                "attributeGroup" => {
                    let name = node.attribute("ref").unwrap_or_default();
                    let name = document.name(name, node)?;
                    let place = document.place(node);
                    let group = self.schemas.get(Kind::AttributeGroup, &name, &place)?;
                    self.read_attributes(group, found, any)?;
                }
                _ => {}
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn attribute(&mut self, component: Component<'a>) -> Result<(AttributeUse, bool), Problem> {
        let Component { document, node } = component;
        let (name, declaration) = match node.attribute("ref") {
            None => {
                let target = document.target.as_deref();
                let namespace = target.filter(|_| document.qualifies(node));
                let name = node.attribute("name").unwrap_or_default();
                (QName::new(namespace, name), Some(component))
            }
            Some(reference) => {
                let name = document.name(reference, node)?;
                // Everybody knows these four; their schema need not be imported.
                let is_known = name.namespace.as_deref() == Some(XML_NAMESPACE);
                let place = document.place(node);
                let found = match is_known {
                    true => None,
                    false => Some(self.schemas.get(Kind::Attribute, &name, &place)?),
                };
                (name, found)
            }
        };
        check_name(&name, &document.place(node))?;
        let ty = match declaration {
            Some(declaration) => self.attribute_type(declaration)?,
            None => self.named_type(&QName::new(Some(XS), "string"), &document.place(node))?,
        };
        let text = |name: &str| {
            let own = node.attribute(name);
            let text = own.or_else(|| declaration?.node.attribute(name));
            text.map(Arc::from)
        };
        let member = match name.namespace.as_deref() {
            Some(XML_NAMESPACE) => format!("@xml:{}", name.local),
            _ => format!("@{}", name.local),
        };
        let usage = node.attribute("use");
        let attribute = AttributeUse {
            name,
            member: member.into(),
            ty,
            is_required: usage == Some("required"),
            default: text("default"),
            fixed: text("fixed"),
        };
        Ok((attribute, usage == Some("prohibited")))
    }
}

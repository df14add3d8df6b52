//! Expressions that only put parts of the input together, as paths and a shape.

use super::{Fast, Stream};
use crate::json::{self, Key, Projection, Shape};
use crate::value::Value;

/// The paths and the shape of an expression that has nothing else.
pub(in crate::jq) fn projection(fast: &Fast) -> Option<Projection> {
    let mut projection = Projection::default();
    let mut depth = 0;
    let shape = shape(fast, &mut projection, &mut depth, 0)?;
    projection.finish(shape, depth)
}

fn shape(
    fast: &Fast,
    projection: &mut Projection,
    depth: &mut usize,
    level: usize,
) -> Option<Shape> {
    *depth = level.max(*depth);
    Some(match fast {
        Fast::Input => projection.part([]),
        Fast::Path(head, steps) if matches!(**head, Fast::Input) => {
            let keys = steps
                .iter()
                .map(|step| match (&step.key, step.is_optional) {
                    (Value::TStr(name), false) => Some(Key::Name(name.to_vec())),
                    (Value::Num(jaq_json::Num::Int(at)), false) => {
                        usize::try_from(*at).ok().map(Key::Index)
                    }
                    _ => None,
                });
            projection.part(keys.collect::<Option<Vec<Key>>>()?)
        }
        Fast::Constant(value) => Shape::Literal(text(value)?),
        Fast::Object(members) => {
            let mut shapes: Vec<(Vec<u8>, Shape)> = Vec::new();
            for (key, member) in members {
                let Fast::Constant(key @ Value::TStr(_)) = key else {
                    return None;
                };
                let name = text(key)?;
                if shapes.iter().any(|(known, _)| *known == name) {
                    return None;
                }
                shapes.push((name, shape(member, projection, depth, level + 1)?));
            }
            Shape::Object(shapes)
        }
        Fast::Array(stream) => {
            let parts = match &**stream {
                Stream::Many(parts) => parts.as_slice(),
                one => std::slice::from_ref(one),
            };
            let shapes = parts.iter().map(|part| match part {
                Stream::One(one) => shape(one, projection, depth, level + 1),
                _ => None,
            });
            Shape::Array(shapes.collect::<Option<_>>()?)
        }
        _ => return None,
    })
}

fn text(value: &Value) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    json::write(value, 1 << 20, &mut text).ok()?;
    Some(text)
}

//! The part of JSON Schema that `openapi.json` uses, and no more: a keyword that is not known fails the test, so that none is
//! written down and checked by nobody.

use serde_json::{Map, Value};

/// Says nothing about values.
const ANNOTATIONS: [&str; 2] = ["description", "default"];

/// What is wrong with a value, if anything is. `root` is the document that references are looked up in.
pub(crate) fn check(root: &Value, schema: &Value, value: &Value) -> Result<(), String> {
    at(root, schema, value, "$")
}

fn at(root: &Value, schema: &Value, value: &Value, place: &str) -> Result<(), String> {
    let keywords = schema
        .as_object()
        .unwrap_or_else(|| panic!("{place}: {schema} is no schema"));
    for (keyword, wanted) in keywords {
        match keyword.as_str() {
            "$ref" => at(root, resolve(root, wanted), value, place)?,
            "type" => holds(
                is(value, wanted.as_str().expect("a type")),
                value,
                place,
                "type",
                wanted,
            )?,
            "const" => holds(value == wanted, value, place, "const", wanted)?,
            "enum" => holds(list(wanted).contains(value), value, place, "enum", wanted)?,
            "minimum" => holds(value.as_f64() >= wanted.as_f64(), value, place, "minimum", wanted)?,
            "maximum" => holds(value.as_f64() <= wanted.as_f64(), value, place, "maximum", wanted)?,
            "pattern" => holds(is_id(wanted, value), value, place, "pattern", wanted)?,
            "anyOf" => {
                let any = list(wanted).iter().any(|schema| at(root, schema, value, place).is_ok());
                holds(any, value, place, "anyOf", wanted)?;
            }
            "required" => {
                for name in list(wanted) {
                    let name = name.as_str().expect("a name");
                    holds(value.get(name).is_some(), value, place, "required", &name.into())?;
                }
            }
            "items" => {
                for (index, item) in list(value).iter().enumerate() {
                    at(root, wanted, item, &format!("{place}[{index}]"))?;
                }
            }
            "properties" | "additionalProperties" => {}
            annotation if ANNOTATIONS.contains(&annotation) => {}
            unknown => panic!("{place}: the keyword {unknown} is not known here"),
        }
    }
    members(root, keywords, value, place)
}

fn members(root: &Value, keywords: &Map<String, Value>, value: &Value, place: &str) -> Result<(), String> {
    let Some(members) = value.as_object() else {
        return Ok(());
    };
    for (name, member) in members {
        let place = format!("{place}.{name}");
        let known = keywords.get("properties").and_then(|properties| properties.get(name));
        match known.or(keywords.get("additionalProperties")) {
            Some(Value::Bool(allowed)) => holds(*allowed, member, &place, "additionalProperties", &Value::Null)?,
            Some(schema) => at(root, schema, member, &place)?,
            None => {}
        }
    }
    Ok(())
}

fn holds(holds: bool, value: &Value, place: &str, keyword: &str, wanted: &Value) -> Result<(), String> {
    match holds {
        true => Ok(()),
        false => Err(format!("{place}: {value} is against {keyword} {wanted}")),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn resolve<'d>(root: &'d Value, reference: &Value) -> &'d Value {
    let pointer = reference
        .as_str()
        .and_then(|text| text.strip_prefix('#'))
        .expect("a local reference");
    root.pointer(pointer)
        .unwrap_or_else(|| panic!("{reference} leads nowhere"))
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        other => panic!("the type {other} is not known here"),
    }
}

/// The one pattern that there is.
fn is_id(pattern: &Value, value: &Value) -> bool {
    assert_eq!(pattern, "^[0-9a-f]{32}$", "this pattern is not known here");
    let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    value
        .as_str()
        .is_some_and(|text| text.len() == 32 && text.bytes().all(digit))
}

/// A checker that finds nothing would make every test pass.
#[test]
fn what_is_wrong_is_found() {
    let root = serde_json::json!({"defs": {"id": {"type": "string", "pattern": "^[0-9a-f]{32}$"}}});
    let schema = serde_json::json!({"type": "object", "required": ["id"], "additionalProperties": false, "properties": {
        "id": {"$ref": "#/defs/id"}, "n": {"type": "integer", "minimum": 0, "maximum": 9}, "k": {"enum": ["a", "b"]},
        "all": {"type": "array", "items": {"const": true}}, "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "any": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}}});
    let id = "0".repeat(32);
    let with = |name: &str, value: Value| serde_json::json!({"id": id, name: value});
    for right in [
        with("n", 9.into()),
        with("k", "b".into()),
        with("all", serde_json::json!([true, true])),
        with("map", serde_json::json!({"x": "y"})),
        with("any", false.into()),
    ] {
        assert_eq!(check(&root, &schema, &right), Ok(()));
    }
    for wrong in [
        serde_json::json!([]),
        serde_json::json!({}),
        serde_json::json!({"id": "x"}),
        with("other", 1.into()),
        with("n", 10.into()),
        with("n", (-1).into()),
        with("n", 1.5.into()),
        with("k", "c".into()),
        with("all", serde_json::json!([true, false])),
        with("map", serde_json::json!({"x": 1})),
        with("any", 1.into()),
    ] {
        assert!(check(&root, &schema, &wrong).is_err(), "{wrong}");
    }
}

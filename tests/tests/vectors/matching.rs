//! Whether what came is what a vector expects.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Texts that have names: ids of replies, addresses of nodes.
#[derive(Clone, Default)]
pub(crate) struct Known(BTreeMap<String, String>);

impl Known {
    pub(crate) fn set(&mut self, name: impl Into<String>, text: impl Into<String>) {
        self.0.insert(name.into(), text.into());
    }

    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }

    /// A text with what its names stand for.
    ///
    /// # Errors
    /// One is not known.
    pub(crate) fn fill(&self, text: &str) -> Result<String, String> {
        let mut parts = text.split("{{");
        let mut filled = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (name, behind) = part.split_once("}}").ok_or("a name that does not end")?;
            filled += &self.get(name).ok_or(format!("{name:?} is not known"))?;
            filled += behind;
        }
        Ok(filled)
    }

    /// Compares a body: the members that are wanted have to be there, and there may be others.
    ///
    /// # Errors
    /// It is another one; the text says where.
    pub(crate) fn check(&mut self, wanted: &Map<String, Value>, found: &Value) -> Result<(), String> {
        let found = found.as_object().ok_or("the body is no object")?;
        let mut learned = self.clone();
        for (name, wanted) in wanted {
            learned.value(name, wanted, found.get(name))?;
        }
        *self = learned;
        Ok(())
    }

    fn value(&mut self, place: &str, wanted: &Value, found: Option<&Value>) -> Result<(), String> {
        if let Value::Object(members) = wanted
            && members.keys().any(|name| name.starts_with('$'))
        {
            return members
                .iter()
                .try_for_each(|(name, argument)| self.rule(place, name, argument, found));
        }
        let found = found.ok_or(format!("{place} is missing"))?;
        match (wanted, found) {
            (Value::Object(wanted), Value::Object(members)) => {
                if let Some(more) = members.keys().find(|name| !wanted.contains_key(*name)) {
                    return Err(format!("{place} has the member {more:?}"));
                }
                self.members(place, wanted, members)
            }
            (Value::Array(wanted), Value::Array(items)) if wanted.len() == items.len() => {
                let mut pairs = wanted.iter().zip(items).enumerate();
                pairs.try_for_each(|(at, (wanted, item))| self.value(&format!("{place}[{at}]"), wanted, Some(item)))
            }
            (Value::String(wanted), Value::String(text)) if self.fill(wanted)? == *text => Ok(()),
            _ if wanted == found => Ok(()),
            _ => Err(format!("{place} is {found}, not {wanted}")),
        }
    }

    fn members(&mut self, place: &str, wanted: &Map<String, Value>, found: &Map<String, Value>) -> Result<(), String> {
        wanted
            .iter()
            .try_for_each(|(name, wanted)| self.value(&format!("{place}.{name}"), wanted, found.get(name)))
    }

    fn rule(&mut self, place: &str, rule: &str, argument: &Value, found: Option<&Value>) -> Result<(), String> {
        let wrong = || Err(format!("{place} is {found:?}, not {{{rule:?}: {argument}}}"));
        if rule == "$absent" {
            return if found.is_none() { Ok(()) } else { wrong() };
        }
        let found = found.ok_or(format!("{place} is missing"))?;
        let holds = match (rule, argument) {
            ("$id", Value::String(name)) => {
                let id = found.as_str().unwrap_or_default();
                if !name.is_empty() {
                    self.set(name.as_str(), id);
                }
                is_id(id)
            }
            ("$not", Value::String(other)) => Value::String(self.fill(other)?) != *found,
            ("$integer", Value::Array(bounds)) => is_within(bounds, found),
            ("$text", Value::String(pattern)) => found.as_str().is_some_and(|text| is_like(pattern, text)),
            ("$has", Value::Object(wanted)) => {
                let members = found.as_object().ok_or(format!("{place} is no object"))?;
                return self.members(place, wanted, members);
            }
            ("$set", Value::Array(wanted)) => {
                let fill = |text: &Value| self.fill(text.as_str().unwrap_or_default());
                let mut wanted = wanted.iter().map(fill).collect::<Result<Vec<_>, _>>()?;
                let items = found.as_array().into_iter().flatten().filter_map(Value::as_str);
                let mut items: Vec<String> = items.map(str::to_owned).collect();
                wanted.sort();
                items.sort();
                wanted == items
            }
            _ => return Err(format!("{{{rule:?}: {argument}}} is no rule")),
        };
        if holds { Ok(()) } else { wrong() }
    }
}

fn is_id(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 32 && text.bytes().all(digit)
}

fn is_within(bounds: &[Value], found: &Value) -> bool {
    let [least, most] = bounds else { return false };
    let [least, most, found] = [least, most, found].map(|value| value.as_i64().map(i128::from));
    matches!((least, most, found), (Some(least), Some(most), Some(found)) if (least..=most).contains(&found))
}

/// `…` stands for any text that is not empty.
pub(crate) fn is_like(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('…') else {
        return pattern == text;
    };
    let Some(left) = text.strip_prefix(start) else {
        return false;
    };
    let ends = left.char_indices().map(|(at, char)| at + char.len_utf8());
    ends.into_iter().any(|end| is_like(rest, &left[end..]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(wanted: &Value, found: &Value) -> Result<(), String> {
        let mut known = Known::default();
        known.set("one", "1");
        known.check(wanted.as_object().unwrap(), found)
    }

    #[test]
    fn patterns_stand_for_some_text() {
        for (pattern, text, like) in [
            ("abc", "abc", true),
            ("abc", "abcd", false),
            ("a: …", "a: é", true),
            ("a: …", "a: ", false),
            ("… of …", "one of two", true),
            ("… of …", "one off", false),
            ("a…c…e", "abbcdde", true),
            ("a…c…e", "ace", false),
        ] {
            assert_eq!(is_like(pattern, text), like, "{pattern} {text}");
        }
    }

    #[test]
    fn the_outermost_object_may_have_more_and_others_may_not() {
        let found = json!({"a": 1, "b": {"c": [1, "1"]}});
        check(&json!({"a": 1}), &found).unwrap();
        check(&json!({"b": {"c": [1, "{{one}}"]}, "d": {"$absent": true}}), &found).unwrap();
        for wrong in [
            json!({"a": 2}),
            json!({"c": 1}),
            json!({"a": {"$absent": true}}),
            json!({"b": {}}),
            json!({"b": {"c": [1]}}),
            json!({"b": {"c": [1, "{{two}}"]}}),
        ] {
            check(&wrong, &found).unwrap_err();
        }
    }

    #[test]
    fn every_rule_holds_or_does_not() {
        let id = "0123456789abcdef0123456789abcdef";
        let found = json!({"id": id, "n": 5, "t": "abc", "o": {"x": 1, "y": 2}, "s": ["b", "1"]});
        for (right, wrong) in [
            (
                json!({"id": {"$id": "", "$not": "x"}}),
                json!({"id": {"$id": "", "$not": id}}),
            ),
            (json!({"id": {"$id": ""}}), json!({"t": {"$id": ""}})),
            (json!({"n": {"$integer": [5, 6]}}), json!({"n": {"$integer": [6, 7]}})),
            (json!({"t": {"$text": "a…"}}), json!({"t": {"$text": "b…"}})),
            (json!({"o": {"$has": {"x": 1}}}), json!({"o": {"$has": {"z": 1}}})),
            (json!({"s": {"$set": ["{{one}}", "b"]}}), json!({"s": {"$set": ["b"]}})),
            (json!({"z": {"$absent": true}}), json!({"n": {"$unknown": true}})),
        ] {
            check(&right, &found).unwrap();
            check(&wrong, &found).unwrap_err();
        }
    }

    #[test]
    fn an_id_is_remembered_when_everything_else_is_right() {
        let id = "0123456789abcdef0123456789abcdef";
        let mut known = Known::default();
        let wanted = json!({"id": {"$id": "first"}, "n": 1});
        let wanted = wanted.as_object().unwrap();
        known.check(wanted, &json!({"id": id, "n": 2})).unwrap_err();
        assert_eq!(known.get("first"), None);
        known.check(wanted, &json!({"id": id, "n": 1})).unwrap();
        assert_eq!(
            known.fill("message {{first}} not found"),
            Ok(format!("message {id} not found"))
        );
    }
}

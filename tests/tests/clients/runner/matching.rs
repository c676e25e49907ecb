//! Whether an answer is what a scenario expects.

use serde_json::Value;

/// What does not match, if something does not.
pub(super) fn check(expected: &Value, answer: &Value) -> Result<(), String> {
    match matches(expected, Some(answer)) {
        true => Ok(()),
        false => Err(format!("{answer} does not match {expected}")),
    }
}

/// The value at a path such as `deliveries.0.payload`.
pub(super) fn at<'a>(answer: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(answer, |value, part| match value {
        Value::Array(elements) => elements.get(part.parse::<usize>().ok()?),
        other => other.get(part),
    })
}

fn matches(expected: &Value, actual: Option<&Value>) -> bool {
    match (expected, actual) {
        (Value::String(text), _) if text == "$any" => {
            actual.is_some_and(|actual| !actual.is_null() && actual.as_str() != Some(""))
        }
        (Value::Object(members), _) if members.keys().any(|key| key.starts_with('$')) => {
            let (matcher, operand) = members.iter().next().expect("a matcher");
            assert_eq!(members.len(), 1, "{expected}");
            special(matcher, operand, actual)
        }
        (Value::Object(members), Some(Value::Object(actual))) => {
            members.iter().all(|(key, value)| matches(value, actual.get(key)))
        }
        (Value::Array(elements), Some(Value::Array(actual))) => {
            let pairs = elements.iter().zip(actual);
            elements.len() == actual.len() && pairs.into_iter().all(|(one, other)| matches(one, Some(other)))
        }
        // What a step has no expectation of.
        (Value::Null, Some(Value::Object(_) | Value::Null)) => true,
        (expected, Some(actual)) => expected == actual,
        (_, None) => false,
    }
}

fn special(matcher: &str, operand: &Value, actual: Option<&Value>) -> bool {
    let elements = actual.and_then(Value::as_array);
    match matcher {
        "$min" => actual.and_then(Value::as_f64) >= operand.as_f64() && operand.is_number(),
        "$length" => elements.map(|elements| elements.len() as u64) == operand.as_u64(),
        "$contains" => elements.is_some_and(|elements| {
            let wanted = operand.as_array().expect("an array");
            let is_there = |wanted| elements.iter().any(|element| matches(wanted, Some(element)));
            wanted.iter().all(is_there)
        }),
        "$unordered" => elements.is_some_and(|elements| {
            let wanted = operand.as_array().expect("an array");
            let mut rest: Vec<&Value> = elements.iter().collect();
            let mut take = |wanted| {
                let position = rest.iter().position(|element| matches(wanted, Some(element)));
                position.map(|position| rest.swap_remove(position)).is_some()
            };
            wanted.len() == elements.len() && wanted.iter().all(&mut take)
        }),
        other => panic!("{other} is no matcher"),
    }
}

#[test]
fn matchers_match_what_the_page_says() {
    use serde_json::json;
    let answer = json!({"a": [1, 2, 3], "b": {"c": "x", "d": ""}, "n": null});
    for good in [
        json!({"a": [1, 2, 3]}),
        json!({"a": {"$length": 3}, "b": {"c": "$any"}}),
        json!({"a": {"$unordered": [3, 1, 2]}}),
        json!({"a": {"$contains": [2]}}),
        json!({"a": [{"$min": 1}, {"$min": 1}, 3]}),
    ] {
        assert_eq!(check(&good, &answer), Ok(()), "{good}");
    }
    for bad in [
        json!({"a": [1, 2]}),
        json!({"a": {"$unordered": [3, 1, 1]}}),
        json!({"a": {"$contains": [4]}}),
        json!({"b": {"d": "$any"}}),
        json!({"n": "$any"}),
        json!({"z": 1}),
        json!({"a": [{"$min": 2}, 2, 3]}),
    ] {
        assert!(check(&bad, &answer).is_err(), "{bad}");
    }
    assert_eq!(at(&answer, "a.1"), Some(&json!(2)));
    assert_eq!(at(&answer, "b.c"), Some(&json!("x")));
}

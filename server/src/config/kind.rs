//! The kinds of values that keys take, and what each accepts.

use std::time::Duration;

use serde_json::Value;

use super::duration;

/// A value as it was written: with a type in the file, as text in a variable or flag.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Given {
    Json(Value),
    Text(String),
}

impl Given {
    /// Nothing is written.
    fn is_empty(&self) -> bool {
        self.text() == Some("") || matches!(self, Self::Json(Value::Array(list)) if list.is_empty())
    }

    /// What is shown instead of a value that has to stay secret.
    pub(super) fn masked(&self) -> String {
        match self.is_empty() {
            true => self.to_string(),
            false => "(set)".to_owned(),
        }
    }

    fn text(&self) -> Option<&str> {
        match self {
            Self::Json(value) => value.as_str(),
            Self::Text(text) => Some(text),
        }
    }

    fn integer(&self) -> Option<i64> {
        match self {
            Self::Json(value) => value.as_i64().or_else(|| negative_zero(value)),
            Self::Text(text) => text.parse().ok(),
        }
    }

    pub(super) fn boolean(&self) -> Option<bool> {
        match self {
            Self::Json(value) => value.as_bool(),
            Self::Text(text) => match text.as_str() {
                "true" | "1" | "yes" | "on" => Some(true),
                "false" | "0" | "no" | "off" => Some(false),
                _ => None,
            },
        }
    }

    /// The elements of a list; what is between commas counts only if it is not blank.
    fn elements(&self) -> Option<Vec<&str>> {
        match self {
            Self::Json(value) => value.as_array()?.iter().map(Value::as_str).collect(),
            Self::Text(text) => {
                let parts = text.split(',').map(str::trim);
                Some(parts.filter(|part| !part.is_empty()).collect())
            }
        }
    }
}

/// `-0` is a whole number of JSON, and reaches us as the float, which alone has that sign.
fn negative_zero(value: &Value) -> Option<i64> {
    value
        .as_f64()
        .filter(|value| *value == 0.0 && value.is_sign_negative())
        .map(|_| 0)
}

impl std::fmt::Display for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Json(value) => write!(f, "{value}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// What a key accepts, and what it means.
pub(super) trait Kind {
    type Value;
    /// Whether what is written must not be shown.
    const SECRET: bool = false;

    /// `None` if the value is of the wrong type or out of range.
    fn read(&self, given: &Given) -> Option<Self::Value>;
    /// The default, as one would write it in the file.
    fn default_json(&self) -> Value;
    /// What `read` accepts, for people.
    fn allowed(&self) -> String;
}

/// A whole number within bounds.
pub(super) struct Integer {
    pub(super) default: i64,
    pub(super) min: i64,
    pub(super) max: i64,
    pub(super) unit: &'static str,
}

impl Kind for Integer {
    type Value = i64;

    fn read(&self, given: &Given) -> Option<i64> {
        given.integer().filter(|value| (self.min..=self.max).contains(value))
    }

    fn default_json(&self) -> Value {
        self.default.into()
    }

    fn allowed(&self) -> String {
        let space = if self.unit.is_empty() { "" } else { " " };
        format!("{} to {}{space}{}", self.min, self.max, self.unit)
    }
}

/// A part of all, from none of it to the whole.
pub(super) struct Ratio {
    pub(super) default: f64,
}

impl Kind for Ratio {
    type Value = f64;

    fn read(&self, given: &Given) -> Option<f64> {
        let value = match given {
            Given::Json(value) => value.as_f64(),
            Given::Text(text) => text.parse().ok(),
        };
        value.filter(|value| (0.0..=1.0).contains(value))
    }

    fn default_json(&self) -> Value {
        self.default.into()
    }

    fn allowed(&self) -> String {
        "0 to 1".to_owned()
    }
}

/// Yes or no.
pub(super) struct Switch {
    pub(super) default: bool,
}

impl Kind for Switch {
    type Value = bool;

    fn read(&self, given: &Given) -> Option<bool> {
        given.boolean()
    }

    fn default_json(&self) -> Value {
        self.default.into()
    }

    fn allowed(&self) -> String {
        "`true`, `false`".to_owned()
    }
}

/// A duration within bounds: text with units, or a number of nanoseconds.
pub(super) struct Time {
    pub(super) default: Duration,
    pub(super) min: Duration,
    pub(super) max: Duration,
}

impl Kind for Time {
    type Value = Duration;

    fn read(&self, given: &Given) -> Option<Duration> {
        let nanos = || given.integer().and_then(|nanos| u64::try_from(nanos).ok());
        let parsed = given.text().and_then(duration::parse);
        parsed
            .or_else(|| nanos().map(Duration::from_nanos))
            .filter(|value| (self.min..=self.max).contains(value))
    }

    fn default_json(&self) -> Value {
        duration::format(self.default).into()
    }

    fn allowed(&self) -> String {
        let (min, max) = (duration::format(self.min), duration::format(self.max));
        format!("{min} to {max}")
    }
}

/// Text with a meaning of its own.
pub(super) struct Parsed<T> {
    pub(super) default: &'static str,
    pub(super) parse: fn(&str) -> Option<T>,
    pub(super) allowed: &'static str,
}

impl<T> Kind for Parsed<T> {
    type Value = T;

    fn read(&self, given: &Given) -> Option<T> {
        given.text().and_then(self.parse)
    }

    fn default_json(&self) -> Value {
        self.default.into()
    }

    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }
}

/// Text that is shown to nobody; not set by default.
pub(super) struct Secret<T> {
    pub(super) parse: fn(&str) -> Option<T>,
    pub(super) allowed: &'static str,
}

impl<T> Kind for Secret<T> {
    type Value = T;
    const SECRET: bool = true;

    fn read(&self, given: &Given) -> Option<T> {
        given.text().and_then(self.parse)
    }

    fn default_json(&self) -> Value {
        "".into()
    }

    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }
}

/// Several texts, each with a meaning of its own; none by default.
pub(super) struct List<T> {
    pub(super) parse: fn(&str) -> Option<T>,
    pub(super) allowed: &'static str,
}

impl<T> Kind for List<T> {
    type Value = Vec<T>;

    fn read(&self, given: &Given) -> Option<Vec<T>> {
        given.elements()?.into_iter().map(self.parse).collect()
    }

    fn default_json(&self) -> Value {
        Value::Array(Vec::new())
    }

    fn allowed(&self) -> String {
        self.allowed.to_owned()
    }
}

/// One of a few words, the first of which is the default.
pub(super) struct Choice<T: 'static> {
    pub(super) among: &'static [(&'static str, T)],
}

impl<T: Copy> Kind for Choice<T> {
    type Value = T;

    fn read(&self, given: &Given) -> Option<T> {
        let text = given.text()?;
        self.among
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, meaning)| *meaning)
    }

    fn default_json(&self) -> Value {
        self.among.first().map_or(Value::Null, |(word, _)| (*word).into())
    }

    fn allowed(&self) -> String {
        let words: Vec<_> = self.among.iter().map(|(word, _)| format!("`{word}`")).collect();
        words.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PORT: Integer = Integer {
        default: 1,
        min: 0,
        max: 65_535,
        unit: "",
    };

    #[test]
    fn a_number_is_a_number_in_the_file_and_digits_elsewhere() {
        assert_eq!(PORT.read(&Given::Json(json!(9090))), Some(9090));
        assert_eq!(PORT.read(&Given::Text("9090".into())), Some(9090));
        for zero in ["0", "-0"] {
            assert_eq!(PORT.read(&Given::Json(serde_json::from_str(zero).unwrap())), Some(0));
            assert_eq!(PORT.read(&Given::Text(zero.into())), Some(0));
        }
        for wrong in [
            json!("9090"),
            json!(1.5),
            json!(0.0),
            json!(-1),
            json!(65_536),
            json!(true),
            json!(null),
        ] {
            assert_eq!(PORT.read(&Given::Json(wrong.clone())), None, "{wrong}");
        }
        for wrong in ["", "x", "-1", "65536", "1.0"] {
            assert_eq!(PORT.read(&Given::Text(wrong.into())), None, "{wrong}");
        }
    }

    #[test]
    fn a_ratio_is_a_number_from_0_to_1() {
        let ratio = Ratio { default: 1.0 };
        for (given, value) in [(json!(0), 0.0), (json!(0.25), 0.25), (json!(1), 1.0)] {
            assert_eq!(ratio.read(&Given::Json(given)), Some(value));
            assert_eq!(ratio.read(&Given::Text(value.to_string())), Some(value));
        }
        for wrong in [json!(-0.1), json!(1.1), json!("0.5"), json!(null)] {
            assert_eq!(ratio.read(&Given::Json(wrong.clone())), None, "{wrong}");
        }
        for wrong in ["", "x", "-1", "2", "NaN", "inf"] {
            assert_eq!(ratio.read(&Given::Text(wrong.into())), None, "{wrong}");
        }
    }

    #[test]
    fn a_switch_is_a_truth_value_in_the_file_and_a_word_elsewhere() {
        let switch = Switch { default: false };
        assert_eq!(switch.read(&Given::Json(json!(true))), Some(true));
        for (word, value) in [("true", true), ("1", true), ("false", false), ("off", false)] {
            assert_eq!(switch.read(&Given::Text(word.into())), Some(value), "{word}");
        }
        for wrong in [json!("true"), json!(1), json!(null)] {
            assert_eq!(switch.read(&Given::Json(wrong.clone())), None, "{wrong}");
        }
        assert_eq!(switch.read(&Given::Text("ture".into())), None);
    }

    #[test]
    fn a_list_is_an_array_in_the_file_and_has_commas_elsewhere() {
        let list = List {
            parse: |text| text.parse::<u8>().ok(),
            allowed: "",
        };
        assert_eq!(list.read(&Given::Json(json!(["1", "2"]))), Some(vec![1, 2]));
        assert_eq!(list.read(&Given::Text("1, 2,,".into())), Some(vec![1, 2]));
        assert_eq!(list.read(&Given::Text(",".into())), Some(vec![]));
        for wrong in [json!("1"), json!([1]), json!(["x"]), json!([""]), json!({})] {
            assert_eq!(list.read(&Given::Json(wrong.clone())), None, "{wrong}");
        }
        assert_eq!(list.read(&Given::Text("1,x".into())), None);
    }

    #[test]
    fn a_duration_is_text_with_a_unit_or_nanoseconds() {
        let time = Time {
            default: Duration::from_secs(1),
            min: Duration::from_millis(1),
            max: Duration::from_secs(60),
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(time.read(&Given::Json(json!("1s"))), second);
        assert_eq!(time.read(&Given::Json(json!(1_000_000_000))), second);
        assert_eq!(time.read(&Given::Text("1s".into())), second);
        assert_eq!(time.read(&Given::Text("1000000000".into())), second);
        for wrong in [json!("61s"), json!("30"), json!(999_999), json!(-1), json!(null)] {
            assert_eq!(time.read(&Given::Json(wrong.clone())), None, "{wrong}");
        }
    }
}

//! Reading JSON objects member by member, without copying what needs no copy.
//!
//! Names match without regard to case, `null` is the same as leaving a member out, unknown members are skipped, and of
//! a member that is given twice the last counts. A member of the wrong type makes the whole body invalid.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Unexpected, Visitor};

/// More would be over the limit of their bytes in any sensible use; checked while reading, so that a frame full of
/// empty headers does not grow to many times its size.
const HEADERS_MAX: usize = 4_096;

/// Longest detail of an error that is sent back: the reader quotes what it did not like, which may be megabytes.
const DETAIL_BYTES_MAX: usize = 200;

/// Keys and values; each key once.
pub(super) type Headers<'a> = Vec<(Cow<'a, str>, Cow<'a, str>)>;

/// Why a body was refused.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidBody(String);

impl fmt::Display for InvalidBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<serde_json::Error> for InvalidBody {
    fn from(error: serde_json::Error) -> Self {
        Self(shortened(&error.to_string(), DETAIL_BYTES_MAX).into_owned())
    }
}

/// The text, or its start with an ellipsis if it has more than `bytes_max` bytes.
pub(super) fn shortened(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    let end = (0..=bytes_max).rev().find(|end| text.is_char_boundary(*end));
    format!("{}…", &text[..end.unwrap_or(0)]).into()
}

/// A body that is read member by member.
pub(super) trait Members<'de>: Default {
    /// In lower case.
    const NAMES: &'static [&'static str];

    /// Reads the value of the member `name`, which is one of `NAMES`.
    fn set<A: MapAccess<'de>>(&mut self, name: &str, map: &mut A) -> Result<(), A::Error>;
}

/// Reads a body, which has to be one JSON object and nothing else.
pub(super) fn read<'de, M: Members<'de>>(body: &'de [u8]) -> Result<M, InvalidBody> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let members = deserializer.deserialize_map(BodyVisitor(PhantomData))?;
    deserializer.end()?;
    Ok(members)
}

/// The value of a member that is text.
pub(super) fn text<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Cow<'de, str>, A::Error> {
    let read = map.next_value::<Option<Text<'de>>>()?;
    Ok(read.map_or(Cow::Borrowed(""), |text| text.0))
}

/// The value of a member that is a whole number.
pub(super) fn integer<'de, A: MapAccess<'de>>(map: &mut A) -> Result<i64, A::Error> {
    Ok(optional_integer(map)?.unwrap_or(0))
}

/// As [`integer`], where 0 is something else than nothing.
pub(super) fn optional_integer<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<i64>, A::Error> {
    Ok(map.next_value::<Option<Integer>>()?.map(|integer| integer.0))
}

/// The value of a member that is true or false.
pub(super) fn switch<'de, A: MapAccess<'de>>(map: &mut A) -> Result<bool, A::Error> {
    Ok(optional_switch(map)?.unwrap_or(false))
}

/// As [`switch`], where false is something else than nothing.
pub(super) fn optional_switch<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Option<bool>, A::Error> {
    map.next_value()
}

/// The value of a member that is an object of texts.
pub(super) fn headers<'de, A: MapAccess<'de>>(map: &mut A) -> Result<Headers<'de>, A::Error> {
    let read = map.next_value::<Option<HeadersObject<'de>>>()?;
    Ok(read.map_or(Vec::new(), |object| object.0))
}

struct BodyVisitor<M>(PhantomData<M>);

impl<'de, M: Members<'de>> Visitor<'de> for BodyVisitor<M> {
    type Value = M;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<M, A::Error> {
        let mut members = M::default();
        while let Some(name) = map.next_key_seed(NameOf(M::NAMES))? {
            match name {
                Some(name) => members.set(name, &mut map)?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(members)
    }
}

/// Reads a name, and finds it among those that are known.
struct NameOf(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for NameOf {
    type Value = Option<&'static str>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for NameOf {
    type Value = Option<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a member")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        let exact = self.0.iter().find(|known| **known == name);
        Ok(exact
            .or_else(|| self.0.iter().find(|known| known.eq_ignore_ascii_case(name)))
            .copied())
    }
}

/// Text that is borrowed unless it has escapes.
struct Text<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Text<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(TextVisitor)
    }
}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }
}

/// A whole number. `-0` is one, and reaches us as the float, which alone has that sign.
struct Integer(i64);

impl<'de> Deserialize<'de> for Integer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_i64(IntegerVisitor)
    }
}

struct IntegerVisitor;

impl Visitor<'_> for IntegerVisitor {
    type Value = Integer;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("i64")
    }

    fn visit_i64<E>(self, value: i64) -> Result<Integer, E> {
        Ok(Integer(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Integer, E> {
        let value = i64::try_from(value);
        value
            .map(Integer)
            .map_err(|_| E::invalid_value(Unexpected::Other("a number over 2^63"), &self))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Integer, E> {
        match value == 0.0 && value.is_sign_negative() {
            true => Ok(Integer(0)),
            false => Err(E::invalid_type(Unexpected::Float(value), &self)),
        }
    }
}

struct HeadersObject<'a>(Headers<'a>);

impl<'de> Deserialize<'de> for HeadersObject<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(HeadersVisitor)
    }
}

struct HeadersVisitor;

impl<'de> Visitor<'de> for HeadersVisitor {
    type Value = HeadersObject<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HeadersObject<'de>, A::Error> {
        let mut headers = Vec::new();
        while let Some((Text(key), Text(value))) = map.next_entry()? {
            if headers.len() == HEADERS_MAX {
                return Err(A::Error::custom(format_args!("more than {HEADERS_MAX} headers")));
            }
            headers.push((key, value));
        }
        Ok(HeadersObject(last_of_each_key(headers)))
    }
}

fn last_of_each_key(mut headers: Headers<'_>) -> Headers<'_> {
    if headers.len() > 1 {
        // The sort is stable, so the last of equal keys is the last that was given; `dedup_by` would keep the first.
        headers.reverse();
        headers.sort_by(|a, b| a.0.cmp(&b.0));
        headers.dedup_by(|later, kept| later.0 == kept.0);
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(shortened("abc", 3), "abc");
        assert_eq!(shortened("abcd", 3), "abc…");
        assert_eq!(shortened("aéé", 4), "aé…");
        assert_eq!(shortened("é", 1), "…");
    }

    #[test]
    fn of_equal_keys_the_last_value_is_kept() {
        let pair = |key: &'static str, value: &'static str| (Cow::from(key), Cow::from(value));
        let given = vec![
            pair("k", "1"),
            pair("j", "2"),
            pair("k", "3"),
            pair("k", "4"),
            pair("j", "5"),
        ];
        assert_eq!(last_of_each_key(given), [pair("j", "5"), pair("k", "4")]);
    }
}

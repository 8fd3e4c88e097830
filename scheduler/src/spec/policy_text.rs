//! Reads `name:argument:argument+key=value+key=value`.

use std::{fmt::Display, ops::RangeInclusive, str::FromStr};

use crate::suggestion::did_you_mean;

/// What is wrong with a text, in words.
pub(super) struct PolicySyntaxError(pub String);

/// A text in parts; each is taken once.
pub(super) struct Options<'a> {
    name: &'a str,
    /// Arguments that are left, the first one last.
    arguments: Vec<&'a str>,
    pairs: Vec<(&'a str, &'a str)>,
    /// Keys that were asked for.
    known: Vec<&'static str>,
}

impl<'a> Options<'a> {
    pub(super) fn split(text: &'a str) -> Result<Self, PolicySyntaxError> {
        let mut parts = text.split('+');
        let mut head = parts.next().unwrap_or_default().split(':');
        let name = head.next().unwrap_or_default();
        let mut arguments: Vec<&str> = head.collect();
        arguments.reverse();
        let pairs = parts
            .map(|p| {
                p.split_once('=')
                    .ok_or_else(|| PolicySyntaxError(format!("`{p}` is no option: expected key=value")))
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { name, arguments, pairs, known: Vec::new() })
    }

    pub(super) fn name(&self) -> &'a str {
        self.name
    }

    /// The next argument, which must be there; `example` is the policy with all that it needs.
    pub(super) fn argument(
        &mut self,
        name: &str,
        range: RangeInclusive<u32>,
        example: &str,
    ) -> Result<u32, PolicySyntaxError> {
        let missing = || PolicySyntaxError(format!("{name} is missing, as in `{example}`"));
        self.optional_argument(name, range)?.ok_or_else(missing)
    }

    /// The next argument.
    pub(super) fn optional_argument(
        &mut self,
        name: &str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, PolicySyntaxError> {
        let Some(text) = self.arguments.pop() else { return Ok(None) };
        match text.parse() {
            Ok(n) if range.contains(&n) => Ok(Some(n)),
            _ => Err(PolicySyntaxError(format!(
                "{name} = {text}, expected a whole number from {} to {}",
                range.start(),
                range.end()
            ))),
        }
    }

    fn take(&mut self, key: &'static str) -> Option<&'a str> {
        self.known.push(key);
        let at = self.pairs.iter().position(|(k, _)| *k == key)?;
        Some(self.pairs.remove(at).1)
    }

    /// A number.
    pub(super) fn number(
        &mut self,
        key: &'static str,
        range: RangeInclusive<f64>,
    ) -> Result<Option<f64>, PolicySyntaxError> {
        let Some(text) = self.take(key) else { return Ok(None) };
        match text.parse() {
            Ok(x) if range.contains(&x) => Ok(Some(x)),
            _ => Err(PolicySyntaxError(format!(
                "{key} = {text}, expected a number from {} to {}",
                range.start(),
                range.end()
            ))),
        }
    }

    /// One of a few words.
    pub(super) fn choice<T: Copy>(
        &mut self,
        key: &'static str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, PolicySyntaxError> {
        let Some(text) = self.take(key) else { return Ok(None) };
        if let Some((_, value)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(Some(*value));
        }
        let (last, others) = words.split_last().map_or(("", &words[..0]), |(l, o)| (l.0, o));
        let others: Vec<&str> = others.iter().map(|(word, _)| *word).collect();
        let meant = did_you_mean(text, words.iter().map(|(word, _)| *word));
        Err(PolicySyntaxError(format!("{key} = {text}, expected {} or {last}{meant}", others.join(", "))))
    }

    /// Anything that reads itself.
    pub(super) fn parsed<T: FromStr<Err: Display>>(
        &mut self,
        key: &'static str,
    ) -> Result<Option<T>, PolicySyntaxError> {
        let Some(text) = self.take(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|e: T::Err| PolicySyntaxError(format!("{key}: {e}")))
    }

    /// Nothing may be left.
    pub(super) fn finish(self) -> Result<(), PolicySyntaxError> {
        if let Some(argument) = self.arguments.last() {
            return Err(PolicySyntaxError(format!("`{argument}` is one argument too many")));
        }
        match self.pairs.first() {
            Some((key, _)) => {
                let meant = did_you_mean(key, self.known);
                Err(PolicySyntaxError(format!("{} has no option `{key}`{meant}", self.name)))
            }
            None => Ok(()),
        }
    }
}

//! A parameter as it is stored and sent.
//!
//! Settings of its own are a kind more: a job in which no parameter has any is the same bytes as before there
//! were such settings, in Redis, on the disk of a shard and in a checkpoint file, and whoever does not know
//! them refuses a job that has some, instead of training it without.

use serde::{Deserialize, Serialize};

use super::{Parameter, ParameterKind, StepSettings};

#[derive(Serialize, Deserialize)]
pub(super) struct StoredParameter {
    name: String,
    shape: Vec<u64>,
    #[serde(default)]
    kind: StoredKind,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum StoredKind {
    #[default]
    Trained,
    Buffer,
    Rows {
        group: u32,
    },
    TrainedWith(StepSettings),
    RowsWith {
        group: u32,
        settings: StepSettings,
    },
}

impl From<Parameter> for StoredParameter {
    fn from(parameter: Parameter) -> Self {
        let Parameter { name, shape, kind, settings } = parameter;
        let is_usual = settings == StepSettings::default();
        let kind = match kind {
            ParameterKind::Buffer => StoredKind::Buffer,
            ParameterKind::Trained if is_usual => StoredKind::Trained,
            ParameterKind::Rows { group } if is_usual => StoredKind::Rows { group },
            ParameterKind::Trained => StoredKind::TrainedWith(settings),
            ParameterKind::Rows { group } => StoredKind::RowsWith { group, settings },
        };
        Self { name, shape, kind }
    }
}

impl From<StoredParameter> for Parameter {
    fn from(stored: StoredParameter) -> Self {
        let usual = StepSettings::default();
        let (kind, settings) = match stored.kind {
            StoredKind::Trained => (ParameterKind::Trained, usual),
            StoredKind::Buffer => (ParameterKind::Buffer, usual),
            StoredKind::Rows { group } => (ParameterKind::Rows { group }, usual),
            StoredKind::TrainedWith(settings) => (ParameterKind::Trained, settings),
            StoredKind::RowsWith { group, settings } => (ParameterKind::Rows { group }, settings),
        };
        Self { name: stored.name, shape: stored.shape, kind, settings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(parameter: &Parameter) -> (String, Vec<u8>) {
        let (json, bytes) =
            (serde_json::to_string(parameter).unwrap(), postcard::to_stdvec(parameter).unwrap());
        assert_eq!(serde_json::from_str::<Parameter>(&json).unwrap(), *parameter);
        assert_eq!(postcard::from_bytes::<Parameter>(&bytes).unwrap(), *parameter);
        (json, bytes)
    }

    #[test]
    fn a_parameter_without_settings_of_its_own_is_stored_as_before_there_were_any() {
        #[rustfmt::skip]
        let cases = [
            (Parameter::trained("w", vec![2]), r#""trained""#,            &[0][..]),
            (Parameter::buffer("w", vec![2]),  r#""buffer""#,             &[1]),
            (Parameter::rows("w", vec![2], 3), r#"{"rows":{"group":3}}"#, &[2, 3]),
        ];
        for (parameter, json, bytes) in cases {
            let json = format!(r#"{{"name":"w","shape":[2],"kind":{json}}}"#);
            assert_eq!(stored(&parameter), (json, [&[1, b'w', 1, 2], bytes].concat()));
        }
        let read: Parameter = serde_json::from_str(r#"{"name": "w", "shape": [2]}"#).unwrap();
        assert_eq!(read, Parameter::trained("w", vec![2]));
    }

    #[test]
    fn settings_of_its_own_are_stored_as_a_kind_that_earlier_releases_refuse() {
        let settings = StepSettings { weight_decay: Some(0.0), learning_rate_factor: 0.1 };
        let numbers = r#"{"weight_decay":0.0,"learning_rate_factor":0.1}"#;
        let trained = Parameter { settings, ..Parameter::trained("w", vec![2]) };
        let (json, bytes) = stored(&trained);
        assert_eq!(json, format!(r#"{{"name":"w","shape":[2],"kind":{{"trained-with":{numbers}}}}}"#));
        assert_eq!(bytes[4], 3);
        let (json, bytes) = stored(&Parameter { settings, ..Parameter::rows("w", vec![2], 5) });
        let kind = format!(r#"{{"rows-with":{{"group":5,"settings":{numbers}}}}}"#);
        assert_eq!(json, format!(r#"{{"name":"w","shape":[2],"kind":{kind}}}"#));
        assert_eq!(bytes[4..6], [4, 5]);
    }
}

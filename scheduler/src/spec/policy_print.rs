//! Policies in the text form that reads back as the same policy.

use std::fmt;

use super::policy::{BalanceOptions, BalanceRule, DsspReading, ElasticOptions, PolicyRule, PolicySpec};
use crate::predict::PredictorSpec;

impl fmt::Display for ElasticOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        write!(f, ":{}", self.lookahead)?;
        if self.algorithm != default.algorithm {
            write!(f, "+search={}", self.algorithm)?;
        }
        if self.first != default.first {
            write!(f, "+first={}", self.first)?;
        }
        if self.early != default.early {
            write!(f, "+early={}", self.early)?;
        }
        if let Some(lead) = self.max_lead {
            write!(f, "+max-lead={lead}")?;
        }
        if self.average {
            f.write_str("+update=barrier")?;
        }
        if self.overrun != default.overrun {
            write!(f, "+overrun={}", self.overrun)?;
        }
        Ok(())
    }
}

impl fmt::Display for BalanceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = Self::default();
        match self.rule {
            BalanceRule::Proportional => {}
            BalanceRule::Curve => f.write_str("+rule=curve")?,
            BalanceRule::Step => f.write_str("+rule=step")?,
        }
        if self.min != default.min {
            write!(f, "+min={}", self.min)?;
        }
        if self.max != default.max {
            write!(f, "+max={}", self.max)?;
        }
        Ok(())
    }
}

impl fmt::Display for PolicySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match &self.rule {
            PolicyRule::Bsp | PolicyRule::Asp => {}
            PolicyRule::Ssp { staleness } => write!(f, ":{staleness}")?,
            PolicyRule::Dssp { lower, upper, reading } => {
                write!(f, ":{lower}:{upper}")?;
                if *reading == DsspReading::Literal {
                    f.write_str("+reading=literal")?;
                }
            }
            PolicyRule::ElasticBsp(elastic) => write!(f, "{elastic}")?,
            PolicyRule::LbBsp(balance) => write!(f, "{balance}")?,
            PolicyRule::ElasticLb(elastic, balance) | PolicyRule::Auto(elastic, balance) => {
                write!(f, "{elastic}{balance}")?;
            }
            PolicyRule::LocalSgd { steps } => write!(f, ":{steps}")?,
            PolicyRule::DiLoCo { steps, outer_rate, momentum } => {
                write!(f, ":{steps}")?;
                if *outer_rate != 0.7 {
                    write!(f, "+outer-rate={outer_rate}")?;
                }
                if *momentum != 0.9 {
                    write!(f, "+momentum={momentum}")?;
                }
            }
        }
        if self.predictor != PredictorSpec::default() {
            write!(f, "+predictor={}", self.predictor)?;
        }
        Ok(())
    }
}

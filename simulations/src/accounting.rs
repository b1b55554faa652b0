//! Hours, energy and emissions of sites, in integers.
//!
//! A ready worker draws its training power from ready to released; one that starts or stops draws
//! nothing here (nameplate accounting: what is measured at a meter is another figure). Emissions
//! are the energy times the carbon level that held while it was drawn. Both are integrals of step
//! functions over integer milliseconds, so they are exact: what does not fill a whole mWh or mg
//! yet is carried, never rounded away. `f64` becomes an integer in [`to_integer`] alone.
//!
//! A missing level is not zero: energy that was drawn without a known level makes the site's
//! emissions unknown, since leaving it out would be greener than the truth.

use sunward_core::time::Span;

/// One mWh in milliwatt milliseconds.
const MILLIWATT_MS_PER_MWH: i128 = 3_600_000;
/// One mg in milliwatt milliseconds times mg per kWh.
const MILLIWATT_MS_MG_PER_KWH_PER_MG: i128 = 1_000_000 * MILLIWATT_MS_PER_MWH;

/// The nearest integer, halves upwards; beyond the range of `i64` it saturates, and NaN gives 0.
/// The one place where a float enters the accounts.
pub fn to_integer(value: f64) -> i64 {
    (value + 0.5).floor() as i64
}

/// What a number of workers draws together, in milliwatts, and how many they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    workers: u32,
    milliwatts: i64,
}

impl Load {
    /// True without a worker.
    pub fn is_empty(self) -> bool {
        self.workers == 0
    }

    /// This load and `workers` more that draw `worker_kw` kW each.
    #[must_use]
    pub fn and(self, workers: u32, worker_kw: f64) -> Load {
        let each = to_integer(worker_kw * 1_000_000.0);
        Load {
            workers: self.workers.saturating_add(workers),
            milliwatts: self
                .milliwatts
                .saturating_add(each.saturating_mul(i64::from(workers))),
        }
    }
}

/// What a carbon stream says at an instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CarbonLevel {
    /// Nobody ever sent this stream.
    #[default]
    NoStream,
    /// The stream exists and has no value for this instant.
    Missing,
    /// Milligrams of CO2 equivalent per kWh.
    Known(i64),
}

impl CarbonLevel {
    /// A value in gCO2e/kWh; one that is not finite is missing.
    pub fn from_grams(grams_per_kwh: f64) -> CarbonLevel {
        if grams_per_kwh.is_finite() {
            CarbonLevel::Known(to_integer(grams_per_kwh * 1_000.0))
        } else {
            CarbonLevel::Missing
        }
    }
}

/// The carbon levels of a site by both kinds of accounting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carbon {
    /// Of the average kWh in the grid.
    pub average: CarbonLevel,
    /// Of one kWh more.
    pub marginal: CarbonLevel,
}

/// An integral in whole units, with what does not fill the next one yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Integral {
    whole: i64,
    /// Below the unit's size, never negative.
    rest: i128,
}

impl Integral {
    fn add(&mut self, amount: i128, unit: i128) {
        let amount = amount.saturating_add(self.rest);
        let whole = i64::try_from(amount.div_euclid(unit)).unwrap_or(i64::MAX);
        self.whole = self.whole.saturating_add(whole);
        self.rest = amount.rem_euclid(unit);
    }
}

/// Emissions by one kind of accounting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Emissions {
    mg: Integral,
    has_stream: bool,
    /// Some energy was drawn while no level was known.
    has_gap: bool,
}

impl Emissions {
    fn add(&mut self, milliwatt_ms: i128, level: CarbonLevel) {
        match level {
            CarbonLevel::NoStream => self.has_gap |= milliwatt_ms != 0,
            CarbonLevel::Missing => {
                self.has_stream = true;
                self.has_gap |= milliwatt_ms != 0;
            }
            CarbonLevel::Known(mg_per_kwh) => {
                self.has_stream = true;
                self.mg.add(
                    milliwatt_ms.saturating_mul(i128::from(mg_per_kwh)),
                    MILLIWATT_MS_MG_PER_KWH_PER_MG,
                );
            }
        }
    }

    fn figure(&self) -> Option<i64> {
        (self.has_stream && !self.has_gap).then_some(self.mg.whole)
    }
}

/// The account of one site.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteAccount {
    ready_ms: i64,
    energy_mwh: Integral,
    average: Emissions,
    marginal: Emissions,
    starts: u32,
}

impl SiteAccount {
    /// For `span` the site's ready workers drew `load` while the levels were `carbon`.
    /// Call it for spans without ready workers, too: a stream that exists is then known.
    pub fn draw(&mut self, span: Span, load: Load, carbon: Carbon) {
        let ms = span.as_millis().max(0);
        if load.workers > 0 {
            self.ready_ms = self.ready_ms.saturating_add(ms);
        }
        let milliwatt_ms = i128::from(load.milliwatts) * i128::from(ms);
        self.energy_mwh.add(milliwatt_ms, MILLIWATT_MS_PER_MWH);
        self.average.add(milliwatt_ms, carbon.average);
        self.marginal.add(milliwatt_ms, carbon.marginal);
    }

    /// The site was asked to start.
    pub fn started(&mut self) {
        self.starts = self.starts.saturating_add(1);
    }

    /// What the account says so far.
    pub fn figures(&self) -> Figures {
        Figures {
            ready_ms: self.ready_ms,
            energy_mwh: self.energy_mwh.whole,
            emissions_average_mg: self.average.figure(),
            emissions_marginal_mg: self.marginal.figure(),
            starts: self.starts,
        }
    }
}

/// The figures of one site, or the sum over several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Figures {
    /// How long at least one worker was ready (a sum: site-hours), in milliseconds.
    pub ready_ms: i64,
    /// Energy drawn by ready workers, in mWh.
    pub energy_mwh: i64,
    /// By average accounting, in mg CO2e; `None` without a stream, or with gaps in it.
    pub emissions_average_mg: Option<i64>,
    /// By marginal accounting, in mg CO2e; `None` without a stream, or with gaps in it.
    pub emissions_marginal_mg: Option<i64>,
    /// How often it was asked to start.
    pub starts: u32,
}

impl Figures {
    /// The sum; an emissions figure is unknown as soon as one site's is.
    pub fn sum(sites: impl IntoIterator<Item = Figures>) -> Figures {
        let nothing = Figures {
            ready_ms: 0,
            energy_mwh: 0,
            emissions_average_mg: Some(0),
            emissions_marginal_mg: Some(0),
            starts: 0,
        };
        let both = |a: Option<i64>, b: Option<i64>| Some(a?.saturating_add(b?));
        sites.into_iter().fold(nothing, |sum, site| Figures {
            ready_ms: sum.ready_ms.saturating_add(site.ready_ms),
            energy_mwh: sum.energy_mwh.saturating_add(site.energy_mwh),
            emissions_average_mg: both(sum.emissions_average_mg, site.emissions_average_mg),
            emissions_marginal_mg: both(sum.emissions_marginal_mg, site.emissions_marginal_mg),
            starts: sum.starts.saturating_add(site.starts),
        })
    }

    /// Hours with at least one ready worker.
    pub fn hours(&self) -> f64 {
        hours(Span::from_millis(self.ready_ms))
    }

    /// Energy in kWh.
    pub fn energy_kwh(&self) -> f64 {
        millionths(self.energy_mwh)
    }

    /// Emissions by average accounting, in kg CO2e.
    pub fn emissions_average_kg(&self) -> Option<f64> {
        self.emissions_average_mg.map(millionths)
    }

    /// Emissions by marginal accounting, in kg CO2e.
    pub fn emissions_marginal_kg(&self) -> Option<f64> {
        self.emissions_marginal_mg.map(millionths)
    }
}

/// A span in hours, to the nearest millionth (3.6 ms): enough to show, and short in JSON.
pub fn hours(span: Span) -> f64 {
    // 1 ms is 1/3.6 millionths of an hour.
    millionths(to_integer(span.as_millis() as f64 / 3.6))
}

fn millionths(count: i64) -> f64 {
    count as f64 / 1_000_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Span = Span::from_secs(3_600);

    fn marginal(grams_per_kwh: f64) -> Carbon {
        Carbon {
            average: CarbonLevel::NoStream,
            marginal: CarbonLevel::from_grams(grams_per_kwh),
        }
    }

    #[test]
    fn an_hour_of_one_worker() {
        let mut site = SiteAccount::default();
        site.started();
        site.draw(HOUR, Load::default().and(1, 2.024), marginal(65.4));
        let figures = site.figures();
        assert_eq!(
            figures,
            Figures {
                ready_ms: 3_600_000,
                energy_mwh: 2_024_000,
                emissions_average_mg: None,
                // 2.024 kWh x 65.4 g/kWh = 132.3696 g.
                emissions_marginal_mg: Some(132_369),
                starts: 1,
            }
        );
        assert_eq!(figures.hours(), 1.0);
        assert_eq!(figures.energy_kwh(), 2.024);
        assert_eq!(figures.emissions_marginal_kg(), Some(0.132_369));
    }

    #[test]
    fn cutting_a_span_into_pieces_changes_nothing() {
        let load = Load::default().and(3, 2.024).and(2, 0.333_333);
        let mut whole = SiteAccount::default();
        whole.draw(HOUR, load, marginal(-17.6));
        let mut pieces = SiteAccount::default();
        let mut left = HOUR;
        for ms in (1..).map(|k| k * 7 % 1_013 + 1) {
            let piece = Span::from_millis(ms).min(left);
            pieces.draw(piece, load, marginal(-17.6));
            left = left - piece;
            if left.is_zero() {
                break;
            }
        }
        assert_eq!(whole, pieces);
        // A negative level is real, and is never clamped.
        assert!(whole.figures().emissions_marginal_mg < Some(0));
    }

    #[test]
    fn a_gap_makes_the_emissions_unknown_only_if_something_was_drawn_in_it() {
        let load = Load::default().and(1, 1.0);
        let missing = marginal(f64::NAN);
        assert_eq!(missing.marginal, CarbonLevel::Missing);
        let mut site = SiteAccount::default();
        site.draw(HOUR, Load::default(), missing);
        site.draw(HOUR, load, marginal(100.0));
        assert_eq!(site.figures().emissions_marginal_mg, Some(100_000));
        site.draw(Span::from_millis(1), load, missing);
        assert_eq!(site.figures().emissions_marginal_mg, None);
        assert_eq!(site.figures().energy_mwh, 1_000_000);
    }

    #[test]
    fn a_sum_is_unknown_where_one_site_is() {
        let mut known = SiteAccount::default();
        known.draw(HOUR, Load::default().and(1, 1.0), marginal(10.0));
        let mut unknown = SiteAccount::default();
        unknown.draw(HOUR, Load::default().and(1, 1.0), Carbon::default());
        assert_eq!(
            Figures::sum([known.figures(), known.figures()]).emissions_marginal_mg,
            Some(20_000)
        );
        let both = Figures::sum([known.figures(), unknown.figures()]);
        assert_eq!(both.emissions_marginal_mg, None);
        assert_eq!(both.energy_mwh, 2_000_000);
        assert_eq!(both.hours(), 2.0);
    }

    #[test]
    fn rounding_is_to_the_nearest_and_total() {
        let cases = [
            (0.5, 1),
            (0.499, 0),
            (-0.5, 0),
            (-0.501, -1),
            (2_024_000.000_000_1, 2_024_000),
            (f64::INFINITY, i64::MAX),
            (f64::NEG_INFINITY, i64::MIN),
            (f64::NAN, 0),
        ];
        for (value, expected) in cases {
            assert_eq!(to_integer(value), expected, "{value}");
        }
    }
}

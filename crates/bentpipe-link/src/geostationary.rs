//! The delay of a signal over a geostationary satellite, from the positions of the satellite and the two earth stations.

use bentpipe_net::time::Duration;

/// Speed of light in vacuum (SI).
const LIGHT_KM_PER_S: f64 = 299_792.458;
/// Equatorial radius of the Earth (WGS 84). The Earth is taken as a sphere of it: at the poles that is 21 km too much,
/// 0.07 ms.
const EARTH_KM: f64 = 6378.137;
/// Radius of the geostationary orbit (ITU-R S.484: 42 164 km).
const ORBIT_KM: f64 = 42_164.0;

/// A place on the ground, in degrees; north and east are positive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Site {
    /// −90 to 90.
    pub latitude: f64,
    /// −180 to 180.
    pub longitude: f64,
}

/// Kilometres from a site to a satellite above the equator at `longitude`; none where it stands below the horizon.
///
/// The triangle of Earth's centre, site and satellite: d² = R² + r² − 2·R·r·cos γ with cos γ = cos φ · cos Δλ.
#[must_use]
pub fn slant_range_km(site: Site, longitude: f64) -> Option<f64> {
    let cosine = site.latitude.to_radians().cos() * (site.longitude - longitude).to_radians().cos();
    let square = EARTH_KM * EARTH_KM + ORBIT_KM * ORBIT_KM - 2.0 * EARTH_KM * ORBIT_KM * cosine;
    // On the horizon the line of sight is a tangent: cos γ = R / r.
    (cosine >= EARTH_KM / ORBIT_KM).then(|| square.sqrt())
}

/// Up from one site and down to the other; none where one of them does not see the satellite.
#[must_use]
pub fn one_way_delay(hub: Site, terminal: Site, longitude: f64) -> Option<Duration> {
    let km = slant_range_km(hub, longitude)? + slant_range_km(terminal, longitude)?;
    Some(Duration::from_secs_f64(km / LIGHT_KM_PER_S))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn site(latitude: f64, longitude: f64) -> Site {
        Site { latitude, longitude }
    }

    #[test]
    fn closed_forms() {
        // Right below: the height of the orbit, 35,786 km, 119.37 ms a leg.
        let below = slant_range_km(site(0.0, 13.0), 13.0).unwrap();
        assert!((below - 35_785.863).abs() < 1e-6, "{below}");
        let twice = one_way_delay(site(0.0, 13.0), site(0.0, 13.0), 13.0).unwrap();
        assert!((twice.as_secs_f64() - 0.238_737).abs() < 1e-6, "{twice}");
        // On the horizon: Pythagoras, √(r² − R²) = 41,679 km; a little beyond, nothing.
        let horizon = (EARTH_KM / ORBIT_KM).acos().to_degrees();
        let far = slant_range_km(site(horizon - 1e-9, 0.0), 0.0).unwrap();
        assert!((far - (ORBIT_KM * ORBIT_KM - EARTH_KM * EARTH_KM).sqrt()).abs() < 1e-3, "{far}");
        assert_eq!(slant_range_km(site(horizon + 1e-6, 0.0), 0.0), None);
        assert_eq!(one_way_delay(site(0.0, 0.0), site(0.0, 180.0), 0.0), None);
    }

    #[test]
    fn it_is_the_same_on_both_sides_of_the_equator_and_of_the_date_line() {
        let north = slant_range_km(site(45.0, 170.0), -170.0).unwrap();
        assert!((north - slant_range_km(site(-45.0, -150.0), -170.0).unwrap()).abs() < 1e-9);
    }

    #[test]
    fn what_the_papers_say() {
        // Kruse: "one-way delays on a geostationary links are about 250msec"; ACTS at 100° W, Athens (Ohio) and Cleveland.
        let acts = one_way_delay(site(39.3, -82.1), site(41.5, -81.7), -100.0).unwrap();
        assert!((0.245..0.255).contains(&acts.as_secs_f64()), "{acts}");
        // HERMES: 36,000 km are 0.12 s a leg; HOT BIRD 4 at 13° E seen from Rome.
        let rome = one_way_delay(site(41.9, 12.5), site(41.9, 12.5), 13.0).unwrap();
        assert!((0.24..0.26).contains(&rome.as_secs_f64()), "{rome}");
    }
}

//! The wire as a whole: every method is in the authorisation table, and the table names no method that is not served.

use prost::Message as _;
use std::collections::BTreeSet;
use strata_core::policy::authz;

#[test]
fn every_method_of_the_descriptor_set_is_authorised_exactly_once() {
    let set = prost_types::FileDescriptorSet::decode(strata_api::FILE_DESCRIPTOR_SET).expect("descriptor set");
    let declared: BTreeSet<String> = set
        .file
        .iter()
        .filter(|file| file.package().starts_with("strata."))
        .flat_map(|file| {
            file.service.iter().flat_map(move |service| {
                service.method.iter().map(move |m| format!("/{}.{}/{}", file.package(), service.name(), m.name()))
            })
        })
        .collect();
    let table: BTreeSet<String> = authz::METHODS.iter().map(|m| m.path.to_owned()).collect();
    assert_eq!(declared, table);
}

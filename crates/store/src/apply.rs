//! `State::apply`: the entry point of the state machine.
//!
//! Owns: the dispatch of each command to its module, and the state index.
//! Invariant: a refused command and a command that changes nothing leave the index unchanged.

use longshore_model::{ClusterConfig, Command, Event, NamespaceName, SecretName, StateIndex, command::Quota};

use crate::{CommandError, State};

impl State {
    /// Applies one command and returns the events it caused.
    pub fn apply(&mut self, command: Command) -> Result<Vec<Event>, CommandError> {
        let before = self.latest;
        if self.is_numbered {
            self.latest = before.max(command.time().unwrap_or_default());
        }
        let result = self.dispatch(command);
        if result.as_ref().is_ok_and(|events| !events.is_empty()) {
            self.index = StateIndex(self.index.0 + 1);
        } else {
            self.latest = before;
        }
        result
    }

    fn dispatch(&mut self, command: Command) -> Result<Vec<Event>, CommandError> {
        let events = match command {
            Command::Configure(config) => self.configure(config),
            Command::ChangeSettings { expected, config } => self.change_settings(&expected, *config)?,
            Command::Join(node) => self.join(*node)?,
            Command::Label { node, labels } => self.label(&node, labels)?,
            Command::SetNodeAttributes { node, attributes, at } => self.set_attributes(&node, &attributes, at)?,
            Command::SetIntent { node, intent, at } => self.set_intent(&node, intent, at)?,
            Command::Drain { node, deadline, then, at } => self.drain(&node, deadline, then, at)?,
            Command::ConfirmLost { node, at } => self.confirm_lost(&node, at)?,
            Command::SetHealth { node, health, at } => self.set_health(&node, health, at)?,
            Command::SetUseDegraded { node, use_degraded } => self.set_use_degraded(&node, use_degraded)?,
            Command::Apply { namespace, deployment, spec, rerun } => {
                self.apply_manifest(&namespace, &deployment, *spec, rerun)?
            }
            Command::Scale { group, replicas } => self.scale(&group, replicas)?,
            Command::Rollback { namespace, deployment, to, at } => self.roll_back(&namespace, &deployment, to, at)?,
            Command::ControlRollout { namespace, deployment, control: word, at } => {
                self.control_rollout(&namespace, &deployment, word, at)?
            }
            Command::Restart { group, at } => self.restart_service(&group, at)?,
            Command::RemoveVolume { volume } => self.remove_volume(&volume)?,
            Command::Remove { namespace, deployment } => self.remove(namespace, deployment)?,
            Command::PutSecret { namespace, name, version } => self.put_secret(namespace, name, version)?,
            Command::SetQuota { namespace, quota } => self.set_quota(namespace, quota),
            Command::EvenOut => self.request_rebalance_of_all(),
            // These commands exist for the audit log only.
            Command::RecordExec { .. } | Command::RecordBackup => Vec::new(),
            Command::Access(command) => self.change_access(*command)?,
            Command::Refresh { node, fingerprint: survey } => self.refresh(&node, *survey)?,
            Command::Commit(plan) => self.commit(*plan),
            Command::Observe(observation) => self.observe(&observation),
            Command::Stop { namespace, deployment, at } => self.stop_deployment(&namespace, &deployment, at)?,
            Command::Start { namespace, deployment, at } => self.start_deployment(&namespace, &deployment, at)?,
        };
        Ok(events)
    }

    /// Compare-and-set over all settings, not one by one: some are only valid together, and the caller validated the
    /// combination it read. Repeating a change that is in force already succeeds.
    fn change_settings(&mut self, expected: &ClusterConfig, config: ClusterConfig) -> Result<Vec<Event>, CommandError> {
        if self.config != *expected && self.config != config {
            return Err(CommandError::SettingsConflict);
        }
        Ok(self.configure(config))
    }

    fn configure(&mut self, config: ClusterConfig) -> Vec<Event> {
        if self.config == config {
            return Vec::new();
        }
        self.config = config.clone();
        vec![Event::Configured(config)]
    }

    pub(crate) fn put_secret(
        &mut self,
        namespace: NamespaceName,
        name: SecretName,
        version: u64,
    ) -> Result<Vec<Event>, CommandError> {
        let key = (namespace, name);
        match self.secrets.get(&key) {
            Some(&current) if current == version => return Ok(Vec::new()),
            Some(&current) if current > version => {
                return Err(CommandError::SecretVersionRegression { name: key.1, current, asked: version });
            }
            Some(_) | None => {}
        }
        let is_new = self.secrets.insert(key.clone(), version).is_none();
        let mut events = vec![Event::SecretSet { namespace: key.0.clone(), name: key.1.clone(), version }];
        // No replica was placed without the secret, so a new one changes nothing that runs.
        if !is_new {
            self.roll_secret_users(&key.0, &key.1, &mut events);
        }
        Ok(events)
    }

    fn set_quota(&mut self, namespace: NamespaceName, quota: Quota) -> Vec<Event> {
        if self.quotas.get(&namespace).copied().unwrap_or_default() == quota {
            return Vec::new();
        }
        if quota == Quota::default() {
            self.quotas.remove(&namespace);
        } else {
            self.quotas.insert(namespace.clone(), quota);
        }
        vec![Event::QuotaSet { namespace, quota }]
    }
}

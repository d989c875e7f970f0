-- Healthy: the newest backup is recent and has all groups. Suspended: spec.suspend, no backups are taken.
-- Degraded: a backup is late, lacks groups, or can't be made until somebody does something.
if obj.metadata.deletionTimestamp ~= nil then
  return {status = "Progressing", message = "it is being deleted"}
end
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the operator has not seen this generation yet"}
end
local conditions = {}
for _, condition in ipairs(obj.status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, backed_up = conditions["Ready"], conditions["BackedUp"]
if backed_up ~= nil and backed_up.status == "False" then
  return {status = "Degraded", message = backed_up.message}
end
if ready ~= nil and ready.status == "True" then
  if ready.reason == "Suspended" then
    return {status = "Suspended", message = ready.message}
  end
  return {status = "Healthy", message = ready.message}
end
return {status = "Progressing", message = ready ~= nil and ready.message or "the operator has said nothing yet"}

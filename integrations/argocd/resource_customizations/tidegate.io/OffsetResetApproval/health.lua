-- Healthy: the approval has taken effect. Degraded: it has no effect, and its message says why.
if obj.metadata.deletionTimestamp ~= nil then
  return {status = "Progressing", message = "it is being deleted"}
end
if obj.status == nil or obj.status.observedGeneration ~= obj.metadata.generation then
  return {status = "Progressing", message = "the operator has not seen this generation yet"}
end
for _, condition in ipairs(obj.status.conditions or {}) do
  if condition.type == "Effective" then
    local health = {["True"] = "Healthy", ["False"] = "Degraded", ["Unknown"] = "Progressing"}
    return {status = health[condition.status], message = condition.message}
  end
end
return {status = "Progressing", message = "the operator has said nothing yet"}

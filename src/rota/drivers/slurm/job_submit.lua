-- Rota: hold jobs of these partitions until Rota releases them.
-- Put it beside slurm.conf as job_submit.lua, and set JobSubmitPlugins=lua. Without Rota, `rota slurm watchdog` releases.
local PARTITIONS = { "@PARTITIONS@" }

local function is_listed(wanted)
   for _, name in ipairs(PARTITIONS) do
      if name == "*" or name == wanted then return true end
   end
   return false
end

-- Whether every partition that a job may run in is Rota's; one without a partition runs in the default one. Several have
-- that flag once `scontrol update` has changed it: then none is known to be it, unless all of them are Rota's.
local function is_in_partitions(job, part_list)
   if job.partition == nil or job.partition == "" then
      local found = false
      for name, part in pairs(part_list) do
         if part.flag_default == 1 then
            if not is_listed(name) then return is_listed("(default)") end
            found = true
         end
      end
      return found or is_listed("(default)")
   end
   for name in string.gmatch(job.partition, "[^,]+") do
      if not is_listed(name) then return false end
   end
   return true
end

local function is_managed(job, part_list)
   if job.admin_comment ~= nil and job.admin_comment ~= "" then return false end
   if job.reservation ~= nil and job.reservation ~= "" then return false end
   if job.script == nil then return false end  -- srun and salloc wait at a terminal: Slurm starts them itself
   return is_in_partitions(job, part_list)
end

function slurm_job_submit(job, part_list, submit_uid)
   if is_managed(job, part_list) then
      if job.priority == 0 then job.admin_comment = "rota:user" else job.admin_comment = "rota" end
      job.priority = 0
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, part_list, modify_uid)
   return slurm.SUCCESS
end
return slurm.SUCCESS

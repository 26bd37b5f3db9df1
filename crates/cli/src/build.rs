//! Images of services with `build`, made on the local engine by `docker build`.
//!
//! Owns: which are made and what the builder is told. Must not touch: how an image is made.
//! Invariant: an image that is there is left alone unless it is asked for anew; what the builder says is shown as it is.

use std::{
    io,
    path::Path,
    process::{Command, Stdio},
};

use longshore_compose::{Loaded, Recipe};

use crate::print;

/// When images are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    Missing,
    Always,
}

/// Makes what is missing, or everything. What went wrong, where something did.
pub(crate) fn images(loaded: &Loaded, engine: &Path, when: When) -> Result<(), String> {
    for (service, recipe) in &loaded.builds {
        let Some(spec) = loaded.spec.services.get(service) else { continue };
        let image = &spec.container.image;
        let told = |error: &io::Error| {
            format!(
                "error: `docker` is needed to build the image of service `{service}`, and could not be started: {error}\n\n\
                 hint: install the Docker command line, or build `{image}` elsewhere and leave `build` out"
            )
        };
        if when == When::Missing && is_there(engine, image).map_err(|error| told(&error))? {
            continue;
        }
        if !recipe.unused.is_empty() {
            print::note(&format!("warning: not used to build `{image}`: {}", recipe.unused.join(", ")));
        }
        print::note(&format!("building {image} from {}", recipe.context));
        let built = docker(engine).args(arguments(image, recipe)).status().map_err(|error| told(&error))?;
        if !built.success() {
            return Err(format!(
                "error: the image `{image}` of service `{service}` could not be built: `docker build` ended with {built}\n\n\
                 hint: what it said is above; `docker build {}` does the same",
                recipe.context
            ));
        }
    }
    Ok(())
}

/// What to say to whoever applies services with `build` to a cluster of several nodes.
pub(crate) fn to_be_pulled(loaded: &Loaded) -> Vec<String> {
    let images = loaded.builds.keys().filter_map(|service| Some((service, loaded.spec.services.get(service)?)));
    let told = images.map(|(service, spec)| {
        let image = &spec.container.image;
        format!(
            "warning: service `{service}` has `build`, and is not built here: every node pulls `{image}`; push it to a \
             registry they reach, and name it there with `image`"
        )
    });
    told.collect()
}

fn docker(engine: &Path) -> Command {
    let mut command = Command::new("docker");
    command.arg("--host").arg(format!("unix://{}", engine.display())).stdin(Stdio::null());
    command
}

fn is_there(engine: &Path, image: &str) -> io::Result<bool> {
    let looked =
        docker(engine).args(["image", "inspect", image]).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
    Ok(looked.success())
}

fn arguments(image: &str, recipe: &Recipe) -> Vec<String> {
    let mut arguments = vec!["build".to_owned(), "--tag".to_owned(), image.to_owned()];
    let mut option = |name: &str, value: String| arguments.push(format!("--{name}={value}"));
    if let Some(dockerfile) = &recipe.dockerfile {
        let local = !recipe.context.contains("://") && !recipe.context.starts_with("git@");
        // The builder looks for it from where it is started, a manifest means the context.
        let path = if local { Path::new(&recipe.context).join(dockerfile) } else { dockerfile.into() };
        option("file", path.display().to_string());
    }
    for (name, value) in [("target", &recipe.target), ("network", &recipe.network)] {
        if let Some(value) = value {
            option(name, value.clone());
        }
    }
    let pair = |(name, value): (&String, &Option<String>)| match value {
        Some(value) => format!("{name}={value}"),
        None => name.clone(),
    };
    recipe.args.iter().for_each(|arg| option("build-arg", pair(arg)));
    recipe.labels.iter().for_each(|label| option("label", pair(label)));
    recipe.cache_from.iter().for_each(|image| option("cache-from", image.clone()));
    recipe.extra_hosts.iter().for_each(|host| option("add-host", host.replacen('=', ":", 1)));
    arguments.extend(recipe.no_cache.then(|| "--no-cache".to_owned()));
    arguments.extend(recipe.pull.then(|| "--pull".to_owned()));
    arguments.extend(["--".to_owned(), recipe.context.clone()]);
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_builder_is_told_what_the_manifest_says() {
        let recipe = Recipe {
            context: "/src/web".to_owned(),
            dockerfile: Some("prod/Dockerfile".to_owned()),
            target: Some("run".to_owned()),
            args: [("A".to_owned(), Some("1".to_owned())), ("FROM_HERE".to_owned(), None)].into(),
            extra_hosts: vec!["db=10.0.0.1".to_owned()],
            no_cache: true,
            ..Recipe::default()
        };
        let told = arguments("shop-web", &recipe).join(" ");
        assert_eq!(
            told,
            "build --tag shop-web --file=/src/web/prod/Dockerfile --target=run --build-arg=A=1 --build-arg=FROM_HERE \
             --add-host=db:10.0.0.1 --no-cache -- /src/web"
        );
    }
}
